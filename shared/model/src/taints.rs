//! Taints and tolerations, as the kube-scheduler matches them.
//!
//! Source: Kubernetes, "Taints and Tolerations"; provisioning specification 2.6 and 6.13.

use std::fmt;

use crate::ids::Name;

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// New pods are kept off.
    NoSchedule,
    /// New pods are kept off when there is another place.
    PreferNoSchedule,
    /// New pods are kept off, running ones are evicted.
    NoExecute,
}

impl Effect {
    /// The effect as manifests spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// Reads the spelling of manifests.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute]
            .into_iter()
            .find(|e| e.as_str() == text)
    }
}

/// A taint of a node or of a NodePool's template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Taint {
    /// The key.
    pub key: Name,
    /// The value, often empty.
    pub value: Name,
    /// The effect.
    pub effect: Effect,
}

impl Taint {
    /// Builds a taint.
    #[must_use]
    pub fn new(key: impl Into<Name>, value: impl Into<Name>, effect: Effect) -> Self {
        Self {
            key: key.into(),
            value: value.into(),
            effect,
        }
    }

    /// Whether two taints are the same taint: key and effect decide, the value does not.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }

    /// Whether this is a taint that every young node carries for a while and loses by itself.
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        match (&*self.key, self.effect) {
            ("node.kubernetes.io/not-ready", Effect::NoSchedule | Effect::NoExecute)
            | ("node.kubernetes.io/unreachable", Effect::NoSchedule)
            | ("node.cloudprovider.kubernetes.io/uninitialized", Effect::NoSchedule)
            | ("karpenter.sh/unregistered", Effect::NoExecute) => true,
            (key, _) => key.starts_with("readiness.k8s.io/"),
        }
    }
}

impl fmt::Display for Taint {
    /// `key=value:Effect`, or `key:Effect` when the value is empty.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.value.is_empty() { "" } else { "=" };
        write!(
            f,
            "{}{separator}{}:{}",
            self.key,
            self.value,
            self.effect.as_str()
        )
    }
}

/// How a toleration compares the taint's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TolerationOperator {
    /// Values are equal.
    Equal,
    /// Any value.
    Exists,
    /// The taint's value is an integer less than the toleration's.
    Lt,
    /// The taint's value is an integer greater than the toleration's.
    Gt,
}

/// A pod's permission to run in spite of a taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Toleration {
    /// The key; empty (with `Exists`) tolerates every key.
    pub key: Name,
    /// How the values compare.
    pub operator: TolerationOperator,
    /// The value to compare with.
    pub value: Name,
    /// The effect; `None` tolerates every effect.
    pub effect: Option<Effect>,
}

impl Toleration {
    /// Whether a pod with this toleration may run in spite of `taint`.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if self.key.is_empty() {
            return self.operator == TolerationOperator::Exists;
        }
        if self.key != taint.key {
            return false;
        }
        let numbers = || {
            Some((
                taint.value.parse::<i64>().ok()?,
                self.value.parse::<i64>().ok()?,
            ))
        };
        match self.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => self.value == taint.value,
            TolerationOperator::Lt => numbers().is_some_and(|(taint, own)| taint < own),
            TolerationOperator::Gt => numbers().is_some_and(|(taint, own)| taint > own),
        }
    }
}

/// The first taint that none of the tolerations covers. All three effects count, also
/// `PreferNoSchedule` (until relaxation adds a toleration for it).
#[must_use]
pub fn untolerated<'a>(taints: &'a [Taint], tolerations: &[Toleration]) -> Option<&'a Taint> {
    taints.iter().find(|taint| {
        !tolerations
            .iter()
            .any(|toleration| toleration.tolerates(taint))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn toleration(
        key: &str,
        operator: TolerationOperator,
        value: &str,
        effect: Option<Effect>,
    ) -> Toleration {
        Toleration {
            key: key.into(),
            operator,
            value: value.into(),
            effect,
        }
    }

    #[test]
    fn tolerations_match_as_in_the_kube_scheduler() {
        use TolerationOperator::{Equal, Exists, Gt, Lt};
        let taint = Taint::new("k", "5", Effect::NoSchedule);
        for (key, operator, value, effect, expected) in [
            ("k", Equal, "5", None, true),
            ("k", Equal, "6", None, false),
            ("k", Exists, "", Some(Effect::NoSchedule), true),
            ("k", Exists, "", Some(Effect::NoExecute), false),
            ("", Exists, "", None, true),
            ("", Equal, "5", None, false),
            ("other", Exists, "", None, false),
            ("k", Lt, "6", None, true),
            ("k", Lt, "5", None, false),
            ("k", Gt, "4", None, true),
            ("k", Gt, "x", None, false),
        ] {
            let toleration = toleration(key, operator, value, effect);
            assert_eq!(toleration.tolerates(&taint), expected, "{toleration:?}");
        }
    }

    #[test]
    fn a_preference_not_to_schedule_counts_until_it_is_tolerated() {
        let taints = [Taint::new("k", "", Effect::PreferNoSchedule)];
        assert_eq!(untolerated(&taints, &[]), Some(&taints[0]));
    }
}
