//! EC2's filters.
//!
//! Values of one filter are alternatives, filters add up. `*` stands for any characters, `?`
//! for one, a backslash takes the meaning away. An unknown name is an error, as in EC2: a
//! filter that is silently ignored would return everything.

use super::error::ApiError;
use super::query::Params;
use super::tags::Tags;

/// Most values of all filters of one call (EC2 user guide, "Filter your resources").
const VALUES_MAX: usize = 200;

/// Something that can be filtered.
pub(crate) trait Filterable {
    /// The names it knows, besides those of tags.
    const NAMES: &'static [&'static str];

    /// Its tags; `None` if it is a kind without tags.
    fn tags(&self) -> Option<&Tags>;

    /// Whether any of its values for a name passes the test. A name without value passes none.
    fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool;
}

/// The filters of a request.
#[derive(Debug, Default)]
pub(crate) struct Filters {
    filters: Vec<Filter>,
}

#[derive(Debug)]
struct Filter {
    name: Name,
    patterns: Vec<Pattern>,
}

#[derive(Debug)]
enum Name {
    /// `tag:Key`.
    Tag(String),
    /// `tag-key`.
    TagKey,
    /// One of [`Filterable::NAMES`].
    Field(String),
}

impl Filters {
    /// Reads the filters of a request about `R`.
    ///
    /// # Errors
    /// A name that `R` does not have, a filter without values, or too many values.
    pub(crate) fn of<R: Filterable>(params: &Params, tagged: bool) -> Result<Self, ApiError> {
        let mut filters = Vec::new();
        let mut values = 0;
        for filter in params.list("Filter") {
            let name = filter.required("Name")?;
            let parsed = match name.strip_prefix("tag:") {
                Some(key) if tagged => Name::Tag(key.to_owned()),
                None if tagged && name == "tag-key" => Name::TagKey,
                None if R::NAMES.contains(&name) => Name::Field(name.to_owned()),
                _ => return Err(ApiError::value(format!("The filter '{name}' is invalid"))),
            };
            let patterns: Vec<_> = filter
                .texts("Value")
                .into_iter()
                .map(Pattern::new)
                .collect();
            if patterns.is_empty() {
                return Err(ApiError::value(format!(
                    "The filter '{name}' has no values"
                )));
            }
            values += patterns.len();
            filters.push(Filter {
                name: parsed,
                patterns,
            });
        }
        if values > VALUES_MAX {
            return Err(ApiError::new(
                "FilterLimitExceeded",
                format!("The maximum number of filter values is {VALUES_MAX}"),
            ));
        }
        Ok(Self { filters })
    }

    /// Whether a resource passes all filters.
    pub(crate) fn accept<R: Filterable>(&self, resource: &R) -> bool {
        self.filters.iter().all(|filter| filter.accepts(resource))
    }
}

impl Filter {
    fn accepts<R: Filterable>(&self, resource: &R) -> bool {
        let mut test = |value: &str| self.patterns.iter().any(|pattern| pattern.matches(value));
        match &self.name {
            Name::Field(name) => resource.any(name, &mut test),
            Name::Tag(key) => resource
                .tags()
                .and_then(|tags| tags.get(key))
                .is_some_and(|value| test(value)),
            Name::TagKey => resource
                .tags()
                .is_some_and(|tags| tags.keys().any(|key| test(key))),
        }
    }
}

/// A value of a filter.
#[derive(Debug)]
enum Pattern {
    Exact(String),
    Wild(Vec<Piece>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Piece {
    Literal(char),
    One,
    Many,
}

impl Pattern {
    fn new(text: &str) -> Self {
        if !text.contains(['*', '?', '\\']) {
            return Self::Exact(text.to_owned());
        }
        let mut pieces = Vec::new();
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            pieces.push(match c {
                '*' => Piece::Many,
                '?' => Piece::One,
                '\\' => Piece::Literal(chars.next().unwrap_or('\\')),
                c => Piece::Literal(c),
            });
        }
        Self::Wild(pieces)
    }

    fn matches(&self, value: &str) -> bool {
        match self {
            Self::Exact(text) => text == value,
            Self::Wild(pieces) => wild(pieces, value),
        }
    }
}

/// Greedy match that goes back only to the last star: linear for one star, never exponential.
fn wild(pieces: &[Piece], value: &str) -> bool {
    let value: Vec<char> = value.chars().collect();
    let (mut at, mut piece) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while at < value.len() {
        match pieces.get(piece) {
            Some(Piece::Many) => {
                retry = Some((piece + 1, at));
                piece += 1;
            }
            Some(Piece::One) => {
                at += 1;
                piece += 1;
            }
            Some(Piece::Literal(c)) if value.get(at) == Some(c) => {
                at += 1;
                piece += 1;
            }
            _ => {
                let Some((after_star, consumed)) = retry else {
                    return false;
                };
                retry = Some((after_star, consumed + 1));
                piece = after_star;
                at = consumed + 1;
            }
        }
    }
    pieces
        .get(piece..)
        .unwrap_or_default()
        .iter()
        .all(|piece| *piece == Piece::Many)
}

#[cfg(test)]
mod tests {
    use super::{Filterable, Filters, Pattern};
    use crate::aws::query::Params;
    use crate::aws::tags::Tags;

    struct Thing(&'static str, Tags);

    impl Filterable for Thing {
        const NAMES: &'static [&'static str] = &["name", "absent"];
        fn tags(&self) -> Option<&Tags> {
            Some(&self.1)
        }
        fn any(&self, name: &str, test: &mut dyn FnMut(&str) -> bool) -> bool {
            name == "name" && test(self.0)
        }
    }

    fn accepts(form: &str) -> bool {
        let tags = Tags::from([("team".to_owned(), "a b".to_owned())]);
        let params = Params::parse(form.as_bytes()).expect("form");
        Filters::of::<Thing>(&params, true)
            .expect("known")
            .accept(&Thing("web-1", tags))
    }

    #[test]
    fn wildcards_match_as_in_ec2() {
        for (pattern, value, expected) in [
            ("m5.*", "m5.large", true),
            ("m5.*", "m5a.large", false),
            ("*.large", "m5.large", true),
            ("m?.large", "m5.large", true),
            ("m?.large", "m5a.large", false),
            ("a*b*c", "a-x-b-y-b-z-c", true),
            ("a*b*c", "a-x-c", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("*", "", true),
            ("plain", "plain", true),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(value),
                expected,
                "{pattern} on {value}"
            );
        }
    }

    /// The definition: a star takes any number of characters, tried one after the other.
    fn naive(pattern: &[char], value: &[char]) -> bool {
        match pattern.split_first() {
            None => value.is_empty(),
            Some(('*', rest)) => (0..=value.len()).any(|taken| naive(rest, &value[taken..])),
            Some((c, rest)) => value
                .split_first()
                .is_some_and(|(first, left)| (*c == '?' || c == first) && naive(rest, left)),
        }
    }

    proptest::proptest! {
        #[test]
        fn wildcards_match_as_defined(pattern in "[ab*?]{0,8}", value in "[ab]{0,10}") {
            let (p, v): (Vec<char>, Vec<char>) = (pattern.chars().collect(), value.chars().collect());
            assert_eq!(Pattern::new(&pattern).matches(&value), naive(&p, &v));
        }
    }

    #[test]
    fn values_are_alternatives_and_filters_add_up() {
        assert!(accepts(
            "Filter.1.Name=name&Filter.1.Value.1=db&Filter.1.Value.2=web-*"
        ));
        let team = "Filter.2.Name=tag:team&Filter.2.Value.1";
        assert!(accepts(&format!(
            "Filter.1.Name=name&Filter.1.Value.1=web-1&{team}=a+b"
        )));
        assert!(!accepts(&format!(
            "Filter.1.Name=name&Filter.1.Value.1=web-1&{team}=c"
        )));
        assert!(accepts("Filter.1.Name=tag-key&Filter.1.Value.1=team"));
        assert!(!accepts("Filter.1.Name=absent&Filter.1.Value.1=*"));
    }

    #[test]
    fn an_unknown_filter_is_an_error() {
        let params = Params::parse(b"Filter.1.Name=nonsense&Filter.1.Value.1=x").expect("form");
        let error = Filters::of::<Thing>(&params, true).expect_err("unknown");
        assert_eq!(error.code, "InvalidParameterValue");
        let params = Params::parse(b"Filter.1.Name=tag:a&Filter.1.Value.1=x").expect("form");
        assert!(Filters::of::<Thing>(&params, false).is_err());
    }
}
