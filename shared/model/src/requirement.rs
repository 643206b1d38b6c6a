//! One label constraint: which values of one key are allowed.
//!
//! Source: provisioning specification 3.1 to 3.3 (representation, derived properties,
//! intersection); the truth table there is a test here.

use std::fmt;

use crate::{ids::Name, labels};

/// A constraint operator of the Kubernetes node-selector family, with the two bounds that
/// Karpenter adds (`Gte`, `Lte`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The label is an integer greater than the value.
    Gt,
    /// The label is an integer less than the value.
    Lt,
    /// The label is an integer greater than or equal to the value.
    Gte,
    /// The label is an integer less than or equal to the value.
    Lte,
}

impl Operator {
    /// The operator as manifests spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "In",
            Self::NotIn => "NotIn",
            Self::Exists => "Exists",
            Self::DoesNotExist => "DoesNotExist",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Gte => "Gte",
            Self::Lte => "Lte",
        }
    }

    /// Reads the spelling of manifests, which is case sensitive.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [
            Self::In,
            Self::NotIn,
            Self::Exists,
            Self::DoesNotExist,
            Self::Gt,
            Self::Lt,
            Self::Gte,
            Self::Lte,
        ]
        .into_iter()
        .find(|operator| operator.as_str() == text)
    }

    /// Whether the operator compares integers.
    #[must_use]
    pub const fn is_bound(self) -> bool {
        matches!(self, Self::Gt | Self::Lt | Self::Gte | Self::Lte)
    }
}

/// The allowed values of one label key.
///
/// `complement == false`: exactly `values`. `complement == true`: everything but `values`, and,
/// when a bound is present, only integers within the bounds. A complement allows the label to be
/// absent only through [`Requirement::allows_absence`].
///
/// A requirement remembers whether any part of it needs the label to be present: `Exists` and
/// `NotIn [a]` together look like `NotIn [a]`, `In [a]` and `In [b]` together like `DoesNotExist`,
/// but a node without the label satisfies neither pair.
///
/// Differs: Karpenter forgets it, and places such pods where they cannot run.
///
/// Shape: `values` sorted and unique; bounds only on complements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Requirement {
    key: Name,
    complement: bool,
    /// Whether some part of the requirement excludes nodes without the label.
    presence: bool,
    values: Vec<Name>,
    gte: Option<i64>,
    lte: Option<i64>,
    min_values: Option<u32>,
}

impl Requirement {
    /// Builds a requirement; key aliases are normalised, values sorted. A bound that is not an
    /// integer counts as 0 (validation has refused it before).
    #[must_use]
    pub fn new(key: &Name, operator: Operator, values: impl IntoIterator<Item = Name>) -> Self {
        let key = labels::normalise(key);
        let mut values: Vec<Name> = values.into_iter().collect();
        values.sort_unstable();
        values.dedup();
        let plain = Self {
            key,
            complement: false,
            presence: !matches!(operator, Operator::NotIn | Operator::DoesNotExist),
            values: Vec::new(),
            gte: None,
            lte: None,
            min_values: None,
        };
        let bound = || {
            values
                .first()
                .and_then(|value| value.parse::<i64>().ok())
                .unwrap_or(0)
        };
        match operator {
            // A type or an image that lists no value of a label says that it has none.
            Operator::In => Self {
                presence: !values.is_empty(),
                values,
                ..plain
            },
            Operator::DoesNotExist => plain,
            Operator::NotIn => Self {
                complement: true,
                values,
                ..plain
            },
            Operator::Exists => Self {
                complement: true,
                ..plain
            },
            Operator::Gte => Self {
                complement: true,
                gte: Some(bound()),
                ..plain
            },
            Operator::Lte => Self {
                complement: true,
                lte: Some(bound()),
                ..plain
            },
            // An integer above the largest one does not exist.
            Operator::Gt => bound().checked_add(1).map_or_else(
                || plain.clone(),
                |gte| Self {
                    complement: true,
                    gte: Some(gte),
                    ..plain.clone()
                },
            ),
            Operator::Lt => bound().checked_sub(1).map_or_else(
                || plain.clone(),
                |lte| Self {
                    complement: true,
                    lte: Some(lte),
                    ..plain.clone()
                },
            ),
        }
    }

    /// `key In [value]`, the requirement that a label makes.
    #[must_use]
    pub fn label(key: &Name, value: &Name) -> Self {
        Self::new(key, Operator::In, [value.clone()])
    }

    /// `key Exists`: any value.
    #[must_use]
    pub fn exists(key: &Name) -> Self {
        Self::new(key, Operator::Exists, [])
    }

    /// Sets the number of distinct values that a NodeClaim's candidate types must span.
    #[must_use]
    pub fn with_min_values(mut self, min_values: Option<u32>) -> Self {
        self.min_values = min_values;
        self
    }

    /// The normalised key.
    #[must_use]
    pub const fn key(&self) -> &Name {
        &self.key
    }

    /// The listed values: allowed ones, or excluded ones when [`Self::is_complement`].
    #[must_use]
    pub fn values(&self) -> &[Name] {
        &self.values
    }

    /// Whether `values` are excluded rather than allowed.
    #[must_use]
    pub const fn is_complement(&self) -> bool {
        self.complement
    }

    /// Smallest and largest allowed integer, where bounded.
    #[must_use]
    pub const fn bounds(&self) -> (Option<i64>, Option<i64>) {
        (self.gte, self.lte)
    }

    /// The number of distinct values that candidates must span.
    #[must_use]
    pub const fn min_values(&self) -> Option<u32> {
        self.min_values
    }

    /// The operator that describes the set: bounds do not show.
    #[must_use]
    pub const fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, false) => Operator::NotIn,
            (true, true) => Operator::Exists,
            (false, false) => Operator::In,
            (false, true) => Operator::DoesNotExist,
        }
    }

    /// Whether a node without the label satisfies the requirement.
    #[must_use]
    pub const fn allows_absence(&self) -> bool {
        !self.presence
    }

    /// Whether no value at all is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.complement && self.values.is_empty()
    }

    /// Whether `value` is allowed.
    #[must_use]
    pub fn has(&self, value: &str) -> bool {
        let listed = self
            .values
            .binary_search_by(|own| (**own).cmp(value))
            .is_ok();
        listed != self.complement && self.within_bounds(value)
    }

    fn within_bounds(&self, value: &str) -> bool {
        within(value, self.gte, self.lte)
    }

    /// The single allowed value, if there is exactly one.
    #[must_use]
    pub fn single(&self) -> Option<&Name> {
        match (self.complement, self.values.as_slice()) {
            (false, [only]) => Some(only),
            _ => None,
        }
    }

    /// The values that both allow. `min_values` is the larger of the two, also on an empty result.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let min_values = self.min_values.max(other.min_values);
        let empty = Self {
            key: self.key.clone(),
            complement: false,
            presence: self.presence || other.presence,
            values: Vec::new(),
            gte: None,
            lte: None,
            min_values,
        };
        if matches!((gte, lte), (Some(g), Some(l)) if g > l) {
            return empty;
        }
        let complement = self.complement && other.complement;
        let mut values: Vec<Name> = match (self.complement, other.complement) {
            (true, true) => {
                let mut union = self.values.clone();
                union.extend(other.values.iter().cloned());
                union.sort_unstable();
                union.dedup();
                union
            }
            (true, false) => other
                .values
                .iter()
                .filter(|v| self.has(v))
                .cloned()
                .collect(),
            (false, _) => self
                .values
                .iter()
                .filter(|v| other.has(v))
                .cloned()
                .collect(),
        };
        // Exclusions outside the bounds are redundant; values outside are not allowed.
        values.retain(|value| within(value, gte, lte));
        let (gte, lte) = if complement { (gte, lte) } else { (None, None) };
        Self {
            complement,
            values,
            gte,
            lte,
            ..empty
        }
    }

    /// Whether some value is allowed by both; agrees with [`Self::intersection`], without building it.
    #[must_use]
    pub fn has_intersection(&self, other: &Self) -> bool {
        let gte = self.gte.max(other.gte);
        let lte = match (self.lte, other.lte) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if matches!((gte, lte), (Some(g), Some(l)) if g > l) {
            return false;
        }
        match (self.complement, other.complement) {
            (true, true) => true,
            (true, false) => other.values.iter().any(|v| self.has(v)),
            (false, _) => self.values.iter().any(|v| other.has(v)),
        }
    }

    /// The entries that write this requirement into a NodeClaim: both bounds give two entries;
    /// bounds take precedence over exclusions; each entry repeats `min_values`.
    #[must_use]
    pub fn to_entries(&self) -> Vec<(Operator, Vec<Name>)> {
        let number = |n: i64| vec![Name::from(n.to_string())];
        match (self.gte, self.lte) {
            (Some(g), Some(l)) => vec![(Operator::Gte, number(g)), (Operator::Lte, number(l))],
            (Some(g), None) => vec![(Operator::Gte, number(g))],
            (None, Some(l)) => vec![(Operator::Lte, number(l))],
            (None, None) => vec![(self.operator(), self.values.clone())],
        }
    }
}

fn within(value: &str, gte: Option<i64>, lte: Option<i64>) -> bool {
    if gte.is_none() && lte.is_none() {
        return true;
    }
    value
        .parse::<i64>()
        .is_ok_and(|n| gte.is_none_or(|g| n >= g) && lte.is_none_or(|l| n <= l))
}

impl fmt::Display for Requirement {
    /// `key In [a b c and 2 others] >=1 <=9 minValues 3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        write!(f, "{} {}", self.key, self.operator().as_str())?;
        if !self.values.is_empty() {
            let shown: Vec<&str> = self.values.iter().take(SHOWN).map(|v| &**v).collect();
            write!(f, " [{}", shown.join(" "))?;
            if let Some(hidden) = self.values.len().checked_sub(SHOWN).filter(|n| *n > 0) {
                write!(f, " and {hidden} others")?;
            }
            f.write_str("]")?;
        }
        if let Some(g) = self.gte {
            write!(f, " >={g}")?;
        }
        if let Some(l) = self.lte {
            write!(f, " <={l}")?;
        }
        if let Some(m) = self.min_values {
            write!(f, " minValues {m}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn requirement(operator: Operator, values: &[&str]) -> Requirement {
        Requirement::new(&"k".into(), operator, values.iter().map(|v| Name::from(*v)))
    }

    /// The same allowed values, whatever is remembered about absence.
    fn same_values(a: &Requirement, b: &Requirement) -> bool {
        (a.complement, &a.values, a.bounds()) == (b.complement, &b.values, b.bounds())
    }

    /// Reads the shorthand of the specification's truth table.
    fn parse(text: &str) -> Requirement {
        let list = |t: &str| -> Vec<String> {
            t.split_once('{')
                .map(|(_, v)| {
                    v.trim_end_matches('}')
                        .split(',')
                        .map(str::to_owned)
                        .collect()
                })
                .unwrap_or_default()
        };
        let with = |operator, t: &str| {
            Requirement::new(&"k".into(), operator, list(t).into_iter().map(Name::from))
        };
        text.split('&')
            .map(|part| match part {
                "Exists" => requirement(Operator::Exists, &[]),
                "DNE" => requirement(Operator::DoesNotExist, &[]),
                p if p.starts_with("In") => with(Operator::In, p),
                p if p.starts_with("NotIn") => with(Operator::NotIn, p),
                p if p.starts_with("Gt") => requirement(Operator::Gt, &[&p[2..]]),
                p if p.starts_with("Lt") => requirement(Operator::Lt, &[&p[2..]]),
                p if p.starts_with(">=") => requirement(Operator::Gte, &[&p[2..]]),
                p if p.starts_with("<=") => requirement(Operator::Lte, &[&p[2..]]),
                p => panic!("unknown shorthand {p}"),
            })
            .reduce(|a, b| a.intersection(&b))
            .unwrap()
    }

    #[test]
    fn a_part_that_needs_the_label_is_not_forgotten() {
        for (text, absence) in [
            ("Exists&NotIn{A}", false),
            ("In{A}&In{B}", false),
            ("In{A}&DNE", false),
            ("Gt1&NotIn{5}", false),
            (">=9&<=1", false),
            ("NotIn{A}&NotIn{B}", true),
            ("NotIn{A}&DNE", true),
            ("In", true),
        ] {
            assert_eq!(parse(text).allows_absence(), absence, "{text}");
        }
    }

    /// The columns of the specification's truth table.
    const COLUMNS: [&str; 9] = [
        "Exists",
        "DNE",
        "In{A}",
        "In{A,B}",
        "NotIn{A}",
        "In{1,9}",
        "NotIn{1,2}",
        "Gt1",
        "Lt9",
    ];

    /// Its rows.
    const ROWS: &[(&str, [&str; 9])] = &[
        (
            "Exists",
            [
                "Exists",
                "DNE",
                "In{A}",
                "In{A,B}",
                "NotIn{A}",
                "In{1,9}",
                "NotIn{1,2}",
                "Gt1",
                "Lt9",
            ],
        ),
        ("DNE", ["DNE"; 9]),
        (
            "In{A}",
            [
                "In{A}", "DNE", "In{A}", "In{A}", "DNE", "DNE", "In{A}", "DNE", "DNE",
            ],
        ),
        (
            "NotIn{A}",
            [
                "NotIn{A}",
                "DNE",
                "DNE",
                "In{B}",
                "NotIn{A}",
                "In{1,9}",
                "NotIn{A,1,2}",
                "Gt1",
                "Lt9",
            ],
        ),
        (
            "In{1,9}",
            [
                "In{1,9}", "DNE", "DNE", "DNE", "In{1,9}", "In{1,9}", "In{9}", "In{9}", "In{1}",
            ],
        ),
        (
            "Gt1",
            [
                "Gt1",
                "DNE",
                "DNE",
                "DNE",
                "Gt1",
                "In{9}",
                "NotIn{2}&>=2",
                "Gt1",
                ">=2&<=8",
            ],
        ),
        (
            "Gt9",
            [
                "Gt9", "DNE", "DNE", "DNE", "Gt9", "DNE", "Gt9", "Gt9", "DNE",
            ],
        ),
    ];

    #[test]
    fn intersections_follow_the_specification_s_truth_table() {
        for (row, cells) in ROWS {
            for (column, expected) in COLUMNS.iter().zip(cells) {
                let (a, b) = (parse(row), parse(column));
                let expected = parse(expected);
                assert!(
                    same_values(&a.intersection(&b), &expected),
                    "{row} with {column}"
                );
                assert!(
                    same_values(&b.intersection(&a), &expected),
                    "{column} with {row}"
                );
            }
        }
    }

    #[test]
    fn an_unreachable_bound_allows_nothing() {
        assert!(requirement(Operator::Gt, &["9223372036854775807"]).is_empty());
        assert_eq!(requirement(Operator::Gt, &["x"]).bounds(), (Some(1), None));
    }

    #[test]
    fn writes_bounds_before_exclusions_and_never_gt_or_lt() {
        let both =
            requirement(Operator::Gt, &["1"]).intersection(&requirement(Operator::Lt, &["9"]));
        let entries = both.to_entries();
        assert_eq!(
            entries,
            vec![
                (Operator::Gte, vec!["2".into()]),
                (Operator::Lte, vec!["8".into()])
            ]
        );
    }

    #[test]
    fn displays_five_values_and_counts_the_rest() {
        let many = requirement(Operator::In, &["a", "b", "c", "d", "e", "f", "g"])
            .with_min_values(Some(2));
        assert_eq!(
            many.to_string(),
            "k In [a b c d e and 2 others] minValues 2"
        );
    }

    fn any_requirement() -> impl Strategy<Value = Requirement> {
        let operator = prop::sample::select(vec![
            Operator::In,
            Operator::NotIn,
            Operator::Exists,
            Operator::DoesNotExist,
            Operator::Gt,
            Operator::Lt,
            Operator::Gte,
            Operator::Lte,
        ]);
        let value = prop::sample::select(vec!["a", "b", "0", "1", "2", "3", "-1"]);
        (operator, prop::collection::vec(value, 0..4))
            .prop_map(|(operator, values)| requirement(operator, &values))
    }

    proptest! {
        #[test]
        fn intersection_means_allowed_by_both_in_any_order(
            a in any_requirement(), b in any_requirement(), c in any_requirement(),
        ) {
            let both = a.intersection(&b);
            for value in ["a", "b", "c", "0", "1", "2", "3", "4", "-1", "-2"] {
                prop_assert_eq!(both.has(value), a.has(value) && b.has(value), "{} {} {}", a, b, value);
            }
            prop_assert_eq!(&both, &b.intersection(&a));
            prop_assert_eq!(both.intersection(&c), a.intersection(&b.intersection(&c)));
            prop_assert_eq!(a.has_intersection(&b), !both.is_empty());
        }
    }
}
