//! Parameters of the Query protocols.
//!
//! A request is a form: `Filter.1.Name=tag:a&Filter.1.Value.1=x`. It is read into a tree, so
//! that handlers speak of "the filters" and "this filter's values". Lists are children with
//! numbers for names; their order is that of the numbers, gaps are allowed (as AWS allows).

use std::collections::BTreeMap;
use std::str::FromStr;

use super::error::ApiError;

/// Deepest nesting and largest number of parameters accepted. CreateFleet's block devices are
/// six deep; 300 overrides with ten members each are 3,000.
const DEPTH_MAX: usize = 16;
const PARAMETERS_MAX: usize = 30_000;

/// A node of the tree.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Params {
    value: Option<String>,
    children: BTreeMap<String, Self>,
}

impl Params {
    /// Reads a form.
    ///
    /// # Errors
    /// Too many parameters, too deep, or a name without a segment: `MalformedQueryString`.
    pub(crate) fn parse(form: &[u8]) -> Result<Self, ApiError> {
        let malformed = |why: &str| Err(ApiError::new("MalformedQueryString", why.to_owned()));
        let mut root = Self::default();
        for (count, (name, value)) in pairs(form).enumerate() {
            if count >= PARAMETERS_MAX {
                return malformed("The query string has too many parameters");
            }
            let mut node = &mut root;
            for (depth, segment) in name.split('.').enumerate() {
                if depth >= DEPTH_MAX || segment.is_empty() {
                    return malformed("The query string has a malformed parameter name");
                }
                if !node.children.contains_key(segment) {
                    node.children.insert(segment.to_owned(), Self::default());
                }
                let Some(child) = node.children.get_mut(segment) else {
                    return malformed("The query string is malformed");
                };
                node = child;
            }
            node.value = Some(value);
        }
        Ok(root)
    }

    /// The node at a path of names, `SpotOptions.AllocationStrategy`.
    pub(crate) fn get(&self, path: &str) -> Option<&Self> {
        path.split('.')
            .try_fold(self, |node, segment| node.children.get(segment))
    }

    /// The text at a path. An empty text is a text.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.get(path)?.value.as_deref()
    }

    /// The text at a path, owned.
    pub(crate) fn string(&self, path: &str) -> Option<String> {
        self.text(path).map(str::to_owned)
    }

    /// The text at a path that must be there and not empty.
    pub(crate) fn required(&self, path: &str) -> Result<&str, ApiError> {
        self.text(path)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| ApiError::missing(path))
    }

    /// The number at a path, if there is one.
    pub(crate) fn number<N: FromStr>(&self, path: &str) -> Result<Option<N>, ApiError> {
        let Some(text) = self.text(path) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            ApiError::value(format!(
                "Invalid value '{text}' for {path}. Must be a number."
            ))
        })
    }

    /// The Boolean at a path, if there is one.
    pub(crate) fn flag(&self, path: &str) -> Result<Option<bool>, ApiError> {
        match self.text(path) {
            None => Ok(None),
            Some("true" | "True") => Ok(Some(true)),
            Some("false" | "False") => Ok(Some(false)),
            Some(text) => Err(ApiError::value(format!(
                "Invalid value '{text}' for {path}. Must be true or false."
            ))),
        }
    }

    /// The members of the list at a path, in the order of their numbers.
    pub(crate) fn list(&self, path: &str) -> Vec<&Self> {
        let Some(node) = self.get(path) else {
            return Vec::new();
        };
        let mut members: Vec<(u32, &Self)> = node
            .children
            .iter()
            .filter_map(|(name, member)| Some((name.parse().ok()?, member)))
            .collect();
        members.sort_by_key(|(number, _)| *number);
        members.into_iter().map(|(_, member)| member).collect()
    }

    /// The texts of the list at a path, in order.
    pub(crate) fn texts(&self, path: &str) -> Vec<&str> {
        self.list(path)
            .into_iter()
            .filter_map(|member| member.value.as_deref())
            .collect()
    }

    /// The same, owned.
    pub(crate) fn strings(&self, path: &str) -> Vec<String> {
        self.texts(path).into_iter().map(str::to_owned).collect()
    }

    /// A hash over everything but some top-level names: equal for equal requests.
    pub(crate) fn digest(&self, except: &[&str]) -> u64 {
        self.children
            .iter()
            .filter(|(name, _)| !except.contains(&name.as_str()))
            .fold(0, |digest, (name, child)| {
                super::id::mix(digest ^ super::id::hash(name) ^ child.digest_all())
            })
    }

    fn digest_all(&self) -> u64 {
        let own = self.value.as_deref().map_or(1, super::id::hash);
        self.children.iter().fold(own, |digest, (name, child)| {
            super::id::mix(digest ^ super::id::hash(name) ^ child.digest_all().rotate_left(17))
        })
    }
}

/// The pairs of a form, decoded. Simulated fleets are large forms, and this loop is the better
/// part of reading them.
fn pairs(form: &[u8]) -> impl Iterator<Item = (String, String)> + '_ {
    form.split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let mut halves = pair.splitn(2, |byte| *byte == b'=');
            let mut half = || decode(halves.next().unwrap_or_default());
            (half(), half())
        })
}

/// Undoes percent-encoding; a percent sign without two digits stands for itself, and bytes
/// that are not UTF-8 become replacement characters.
fn decode(text: &[u8]) -> String {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        at += 1;
        let escaped = if byte == b'%' {
            digit(at).zip(digit(at + 1))
        } else {
            None
        };
        if let Some((high, low)) = escaped {
            // Two hexadecimal digits are below 256.
            decoded.push(u8::try_from(high * 16 + low).unwrap_or(b'%'));
            at += 2;
        } else {
            decoded.push(if byte == b'+' { b' ' } else { byte });
        }
    }
    String::from_utf8(decoded)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Params, pairs};

    proptest::proptest! {
        #[test]
        fn forms_are_decoded_as_the_standard_says(form in "[a%+=&.1é]{0,40}") {
            let standard: Vec<_> = form_urlencoded::parse(form.as_bytes()).into_owned().collect();
            assert_eq!(pairs(form.as_bytes()).collect::<Vec<_>>(), standard);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            if let Err(error) = Params::parse(&bytes) {
                assert_eq!(error.code, "MalformedQueryString");
            }
        }
    }

    fn parsed(form: &str) -> Params {
        Params::parse(form.as_bytes()).expect("well-formed")
    }

    #[test]
    fn lists_are_ordered_by_number_not_by_text() {
        let params = parsed("Id.10=j&Id.2=b&Id.1=a&Id.x=no");
        assert_eq!(params.texts("Id"), ["a", "b", "j"]);
        assert!(params.list("Absent").is_empty());
    }

    #[test]
    fn structures_in_lists_are_reached_by_path() {
        let params = parsed("F.1.Name=tag%3Ax&F.1.Value.1=a+b&F.2.Name=state&Empty=");
        let filters = params.list("F");
        assert_eq!(filters[0].text("Name"), Some("tag:x"));
        assert_eq!(filters[0].texts("Value"), ["a b"]);
        assert_eq!(params.text("Empty"), Some(""));
        assert!(params.required("Empty").is_err());
    }

    #[test]
    fn malformed_values_are_errors_that_name_the_parameter() {
        let params = parsed("Max=ten&Dry=perhaps");
        let error = params.number::<u32>("Max").expect_err("not a number");
        assert_eq!(error.code, "InvalidParameterValue");
        assert!(error.message.contains("Max"));
        assert!(params.flag("Dry").is_err());
        assert_eq!(
            Params::parse(b"a..b=1").expect_err("empty segment").code,
            "MalformedQueryString"
        );
        let deep = vec!["a"; 40].join(".");
        assert!(Params::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn digests_tell_requests_apart_but_not_tokens_or_order() {
        let digest = |form| parsed(form).digest(&["ClientToken"]);
        assert_eq!(
            digest("A.1=x&B=y&ClientToken=1"),
            digest("B=y&A.1=x&ClientToken=2")
        );
        assert_ne!(digest("A.1=x&B=y"), digest("A.1=y&B=x"));
        assert_ne!(digest("A.1=x"), digest("A.2=x"));
    }
}
