//! Pagination with opaque tokens.
//!
//! A token carries the position at which the next page starts and a check that ties it to
//! the call that gave it, so that a token of another call, or an invented one, is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::error::ApiError;
use super::id::{hash, mix};
use super::query::Params;

/// The bounds of a call's page size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Smallest accepted MaxResults.
    pub(crate) min: usize,
    /// Largest page.
    pub(crate) max: usize,
    /// Size without MaxResults.
    pub(crate) default: usize,
}

/// The page that a request asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Page {
    kind: &'static str,
    /// Where the page starts: the position in a list, or a sequence number.
    pub(crate) start: u64,
    /// Most items on it.
    pub(crate) limit: usize,
}

impl Page {
    /// Reads MaxResults and NextToken of an EC2 request. `kind` is the action's name.
    ///
    /// # Errors
    /// A size out of bounds, or a token that this call did not give.
    pub(crate) fn of(
        kind: &'static str,
        params: &Params,
        limits: Limits,
    ) -> Result<Self, ApiError> {
        let limit = match params.number::<usize>("MaxResults")? {
            None => limits.default,
            Some(size) if size < limits.min => {
                return Err(ApiError::value(format!(
                    "Value ( {size} ) for parameter maxResults is invalid. Expecting a value \
                     greater than or equal to {}.",
                    limits.min
                )));
            }
            Some(size) if size > limits.max => {
                return Err(ApiError::value(format!(
                    "Value ( {size} ) for parameter maxResults is invalid. Expecting a value \
                     less than or equal to {}.",
                    limits.max
                )));
            }
            Some(size) => size,
        };
        Self::at(
            kind,
            limit,
            params.text("NextToken").filter(|token| !token.is_empty()),
        )
    }

    /// The page of a size that a token points to; the first without one.
    ///
    /// # Errors
    /// A token that `kind` did not give.
    pub(crate) fn at(
        kind: &'static str,
        limit: usize,
        token: Option<&str>,
    ) -> Result<Self, ApiError> {
        let start = match token {
            None => 0,
            Some(token) => position(kind, token).ok_or_else(|| {
                ApiError::value("The token provided is invalid for the parameter nextToken.")
            })?,
        };
        Ok(Self { kind, start, limit })
    }

    /// The token for a page that starts at a position.
    pub(crate) fn token(&self, start: u64) -> String {
        let check = check(self.kind, start);
        URL_SAFE_NO_PAD.encode([start.to_be_bytes(), check.to_be_bytes()].concat())
    }

    /// This page of a list by position, and the token of the next one if there is more.
    pub(crate) fn of_list<T>(
        &self,
        items: impl IntoIterator<Item = T>,
    ) -> (Vec<T>, Option<String>) {
        let start = usize::try_from(self.start).unwrap_or(usize::MAX);
        let mut rest = items.into_iter().skip(start);
        let page: Vec<T> = rest.by_ref().take(self.limit).collect();
        let token = rest
            .next()
            .map(|_| self.token(self.start + page.len() as u64));
        (page, token)
    }
}

fn check(kind: &str, start: u64) -> u64 {
    mix(hash(kind) ^ start)
}

fn position(kind: &str, token: &str) -> Option<u64> {
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (start, sum) = bytes.split_at_checked(8)?;
    let start = u64::from_be_bytes(start.try_into().ok()?);
    (sum == check(kind, start).to_be_bytes()).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::{Limits, Page};
    use crate::aws::query::Params;

    const LIMITS: Limits = Limits {
        min: 5,
        max: 100,
        default: 100,
    };

    #[test]
    fn pages_cover_a_list_once_and_in_order() {
        let mut seen = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let page = Page::at("DescribeThings", 5, token.as_deref()).expect("own token");
            let (items, next) = page.of_list(0..12);
            seen.extend(items);
            match next {
                Some(next) => token = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn a_page_that_ends_with_the_list_has_no_token() {
        let page = Page::at("DescribeThings", 6, None).expect("no token");
        assert_eq!(page.of_list(0..6).1, None);
    }

    #[test]
    fn foreign_and_invented_tokens_are_refused() {
        let token = Page::at("DescribeThings", 5, None).expect("first").token(5);
        assert!(Page::at("DescribeOthers", 5, Some(&token)).is_err());
        assert!(Page::at("DescribeThings", 5, Some("bm9uc2Vuc2U")).is_err());
    }

    #[test]
    fn sizes_out_of_bounds_are_refused() {
        for (size, ok) in [
            ("4", false),
            ("5", true),
            ("100", true),
            ("101", false),
            ("x", false),
        ] {
            let params = Params::parse(format!("MaxResults={size}").as_bytes()).expect("form");
            assert_eq!(
                Page::of("DescribeThings", &params, LIMITS).is_ok(),
                ok,
                "{size}"
            );
        }
    }
}
