//! A set of requirements, at most one per key: what a pod, a NodePool or an instance type allows.
//!
//! Source: provisioning specification 3.4 to 3.6.

use std::{collections::BTreeMap, fmt};

use crate::{
    ids::Name,
    labels,
    requirement::{Operator, Requirement},
};

/// Requirements by key. Adding a requirement for a key that is present intersects the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Requirements {
    by_key: BTreeMap<Name, Requirement>,
}

/// Why something constrained by one set cannot satisfy another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incompatible {
    /// The key is not defined where it must be.
    Undefined {
        /// The key nobody defines.
        key: Name,
        /// A defined key that looks like what was meant.
        hint: Option<Name>,
    },
    /// Both define the key, with no value in common.
    Conflict {
        /// What was asked for.
        incoming: Box<Requirement>,
        /// What there is.
        existing: Box<Requirement>,
    },
}

impl fmt::Display for Incompatible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { key, hint: None } => {
                write!(f, "label \"{key}\" does not have known values")
            }
            Self::Undefined {
                key,
                hint: Some(hint),
            } => {
                write!(
                    f,
                    "label \"{key}\" does not have known values (did you mean \"{hint}\"?)"
                )
            }
            Self::Conflict { incoming, existing } => {
                write!(f, "key {}, {incoming} not in {existing}", incoming.key())
            }
        }
    }
}

impl Requirements {
    /// No constraint.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// One `In [value]` per label.
    pub fn from_labels<'a>(labels: impl IntoIterator<Item = (&'a Name, &'a Name)>) -> Self {
        labels
            .into_iter()
            .map(|(key, value)| Requirement::label(key, value))
            .collect()
    }

    /// Narrows the set by one requirement.
    pub fn add(&mut self, requirement: Requirement) {
        match self.by_key.get_mut(requirement.key()) {
            Some(existing) => *existing = existing.intersection(&requirement),
            None => {
                self.by_key.insert(requirement.key().clone(), requirement);
            }
        }
    }

    /// Narrows the set by every requirement of `other`.
    pub fn extend_from(&mut self, other: &Self) {
        for requirement in other.iter() {
            self.add(requirement.clone());
        }
    }

    /// Puts a requirement in place of whatever the key had.
    pub fn replace(&mut self, requirement: Requirement) {
        self.by_key.insert(requirement.key().clone(), requirement);
    }

    /// Removes and returns the requirement of a key.
    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.by_key.remove(key)
    }

    /// The requirement of a key, if the key is defined.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Requirement> {
        self.by_key.get(key)
    }

    /// Whether `value` is allowed for `key`; an undefined key allows everything.
    #[must_use]
    pub fn allows(&self, key: &str, value: &str) -> bool {
        self.get(key)
            .is_none_or(|requirement| requirement.has(value))
    }

    /// Requirements in order of key.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> + '_ {
        self.by_key.values()
    }

    /// Number of constrained keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether nothing is constrained.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Whether any requirement asks for a minimum of distinct values.
    #[must_use]
    pub fn has_min_values(&self) -> bool {
        self.iter()
            .any(|requirement| requirement.min_values().is_some())
    }

    /// Checks the keys that both define.
    ///
    /// # Errors
    /// The first key, in order, without a common value. Two requirements that are both satisfied
    /// by the label's absence never conflict.
    pub fn intersects(&self, other: &Self) -> Result<(), Incompatible> {
        let (small, large) = if self.len() <= other.len() {
            (self, other)
        } else {
            (other, self)
        };
        for requirement in small.iter() {
            let Some(twin) = large.get(requirement.key()) else {
                continue;
            };
            if requirement.has_intersection(twin)
                || (requirement.allows_absence() && twin.allows_absence())
            {
                continue;
            }
            let (incoming, existing) = if std::ptr::eq(small, other) {
                (requirement, twin)
            } else {
                (twin, requirement)
            };
            return Err(Incompatible::Conflict {
                incoming: Box::new(incoming.clone()),
                existing: Box::new(existing.clone()),
            });
        }
        Ok(())
    }

    /// Whether something constrained by `self` can satisfy `incoming`, where an undefined key that
    /// `may_be_undefined` accepts counts as "any value".
    ///
    /// # Errors
    /// The first undefined key, else the first conflict.
    pub fn compatible(
        &self,
        incoming: &Self,
        may_be_undefined: impl Fn(&str) -> bool,
    ) -> Result<(), Incompatible> {
        for requirement in incoming.iter() {
            let key = requirement.key();
            let defined = self.get(key).is_some() || may_be_undefined(key);
            if !defined && !requirement.allows_absence() {
                return Err(Incompatible::Undefined {
                    key: key.clone(),
                    hint: self.hint(key),
                });
            }
        }
        self.intersects(incoming)
    }

    /// A well-known or defined key that ends like the offending key or contains it.
    fn hint(&self, key: &str) -> Option<Name> {
        let last_segment = |text: &str| text.rsplit('/').next().unwrap_or(text).to_owned();
        let last = last_segment(key);
        let known = || {
            let own = self.by_key.keys().map(|known| &**known);
            labels::WELL_KNOWN
                .iter()
                .copied()
                .chain(own)
                .filter(|known| *known != key)
        };
        known()
            .find(|known| last_segment(known) == last)
            .or_else(|| known().find(|known| known.contains(key) || known.ends_with(&last)))
            .map(Name::from)
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(iter: I) -> Self {
        let mut requirements = Self::new();
        for requirement in iter {
            requirements.add(requirement);
        }
        requirements
    }
}

impl fmt::Display for Requirements {
    /// The members, comma separated, without the host name (a placeholder during planning).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for requirement in self.iter().filter(|r| &**r.key() != labels::HOSTNAME) {
            if !first {
                f.write_str(", ")?;
            }
            first = false;
            write!(f, "{requirement}")?;
        }
        Ok(())
    }
}

/// A requirement as a manifest states it: one entry of `matchExpressions` or of a NodePool's
/// `requirements`. Kept beside the interned sets because relaxation drops whole terms.
pub fn expression(key: &Name, operator: Operator, values: &[Name]) -> Requirement {
    Requirement::new(key, operator, values.iter().cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(entries: &[(&str, Operator, &[&str])]) -> Requirements {
        entries
            .iter()
            .map(|(key, operator, values)| {
                Requirement::new(
                    &(*key).into(),
                    *operator,
                    values.iter().map(|v| Name::from(*v)),
                )
            })
            .collect()
    }

    fn well_known(key: &str) -> bool {
        labels::is_well_known(key)
    }

    #[test]
    fn a_custom_label_that_nobody_defines_is_refused_unless_its_absence_suffices() {
        let pool = set(&[("team", Operator::In, &["a"])]);
        for (operator, values, fits) in [
            (Operator::In, &["x"][..], false),
            (Operator::Exists, &[], false),
            (Operator::Gt, &["1"], false),
            (Operator::NotIn, &["x"], true),
            (Operator::DoesNotExist, &[], true),
        ] {
            let pod = set(&[("rack", operator, values)]);
            assert_eq!(
                pool.compatible(&pod, well_known).is_ok(),
                fits,
                "{operator:?}"
            );
        }
    }

    #[test]
    fn a_well_known_label_may_be_undefined_on_a_template_but_not_on_a_node() {
        let pod = set(&[(labels::ZONE, Operator::In, &["a"])]);
        assert!(Requirements::new().compatible(&pod, well_known).is_ok());
        assert!(Requirements::new().compatible(&pod, |_| false).is_err());
    }

    #[test]
    fn a_misspelt_key_is_answered_with_the_key_that_was_meant() {
        let pod = set(&[("zone", Operator::In, &["a"])]);
        let error = Requirements::new()
            .compatible(&pod, well_known)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "label \"zone\" does not have known values (did you mean \"topology.kubernetes.io/zone\"?)"
        );
    }

    #[test]
    fn a_conflict_names_what_was_asked_and_what_there_is() {
        let pool = set(&[("arch", Operator::In, &["amd64"])]);
        let pod = set(&[("arch", Operator::In, &["arm64"])]);
        let error = pool.compatible(&pod, well_known).unwrap_err();
        assert_eq!(
            error.to_string(),
            "key arch, arch In [arm64] not in arch In [amd64]"
        );
    }

    #[test]
    fn two_requirements_that_absence_satisfies_do_not_conflict() {
        let a = set(&[("k", Operator::DoesNotExist, &[])]);
        let b = set(&[("k", Operator::NotIn, &["x"])]);
        assert!(a.intersects(&b).is_ok());
    }
}
