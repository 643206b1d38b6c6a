//! Waiting for a level: a state that holds, not an event that may have been missed.

use std::panic::Location;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// First pause between two probes, short because most levels are reached soon.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause: late success costs at most this.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Probes until the level is reached and returns what the probe found.
///
/// The probe says why the level is not reached yet by its error, so a probe reads
/// `anyhow::ensure!(bound == 10, "{bound} of 10 pods bound")`, and a request that fails on
/// the way (`?`) is simply tried again. A probe that hangs is cut off at the bound.
///
/// # Panics
/// After `bound`, with what it waited for, what was seen last, and the caller's place.
#[track_caller]
pub fn eventually<T, F, P>(what: &str, bound: Duration, mut probe: F) -> impl Future<Output = T>
where
    F: FnMut() -> P,
    P: Future<Output = anyhow::Result<T>>,
{
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + bound;
        let mut last = "nothing: the first probe did not return".to_owned();
        let mut probes = 0_u32;
        let mut pause = PAUSE_MIN;
        loop {
            match timeout_at(deadline, probe()).await {
                Ok(Ok(found)) => return found,
                Ok(Err(seen)) => last = format!("{seen:#}"),
                Err(_) => last = format!("{last} (then a probe hung)"),
            }
            probes += 1;
            assert!(
                Instant::now() + pause < deadline,
                "{caller}: gave up after {} s and {probes} probes, waiting for {what}; seen last: {last}",
                bound.as_secs_f32(),
            );
            sleep(pause).await;
            pause = (pause * 3 / 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use anyhow::{bail, ensure};

    use super::*;

    /// Long enough for some probes; nothing depends on how many.
    const SHORT: Duration = Duration::from_millis(100);

    #[tokio::test]
    async fn the_found_value_is_returned_once_the_level_is_reached() {
        let calls = Cell::new(0);
        let found = eventually("three calls", Duration::from_secs(60), async || {
            calls.set(calls.get() + 1);
            ensure!(calls.get() == 3, "{} calls", calls.get());
            Ok("here")
        })
        .await;
        assert_eq!((found, calls.get()), ("here", 3));
    }

    #[tokio::test]
    async fn giving_up_names_the_wait_the_last_sight_and_the_place() {
        let waiting = tokio::spawn(eventually("rain", SHORT, async || -> anyhow::Result<()> {
            bail!("blue sky")
        }));
        let panic = waiting.await.expect_err("must give up").into_panic();
        let text = panic.downcast_ref::<String>().expect("a panic with a text");
        for part in [
            "eventually.rs",
            "after 0.1 s",
            "waiting for rain",
            "seen last: blue sky",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[tokio::test]
    async fn a_probe_that_hangs_is_cut_off_at_the_bound() {
        let waiting = tokio::spawn(eventually("an answer", SHORT, || {
            std::future::pending::<anyhow::Result<()>>()
        }));
        let panic = waiting.await.expect_err("must give up").into_panic();
        let text = panic.downcast_ref::<String>().expect("a panic with a text");
        assert!(text.contains("hung"), "{text}");
    }
}
