//! A thing from outside the repository that a test needs and this machine may lack.

/// Something could be neither found nor made; the text says what and why, for a person.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Absent(pub String);

/// The value, or `None` after printing `skipped: REASON`: the test then returns at once.
///
/// # Panics
/// With `REQUIRE_APISERVER=1`, where absence is a failure.
#[expect(
    clippy::print_stdout,
    reason = "the reason for a skip is the test's output"
)]
#[track_caller]
pub fn present_or_skip<T>(found: Result<T, Absent>) -> Option<T> {
    match found {
        Ok(value) => Some(value),
        Err(absent) => {
            assert!(
                !is_presence_required(),
                "REQUIRE_APISERVER=1, but: {absent}"
            );
            println!("skipped: {absent}");
            None
        }
    }
}

fn is_presence_required() -> bool {
    std::env::var("REQUIRE_APISERVER").is_ok_and(|value| value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_present_is_handed_on() {
        assert_eq!(present_or_skip(Ok(7)), Some(7));
    }

    #[test]
    fn absence_skips_or_fails_as_the_environment_says() {
        let absent = || present_or_skip::<()>(Err(Absent("no such tool".to_owned())));
        if is_presence_required() {
            let panic = std::panic::catch_unwind(absent).expect_err("absence must fail");
            let text = panic.downcast_ref::<String>().expect("a panic with a text");
            assert!(text.contains("no such tool"), "{text}");
        } else {
            assert_eq!(absent(), None);
        }
    }
}
