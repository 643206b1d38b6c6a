//! Gathers concurrent questions about things of one kind into common calls.
//!
//! A window opens with the first question and closes after [`WINDOW`]; whoever asks meanwhile is
//! answered by the same call. The same id asked twice is one question. At most [`BATCH`] ids go
//! into one call; the number of waiting questions is bounded by the callers, who wait.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use millwright_cloud::CloudError;
use tokio::sync::oneshot;

use crate::errors::incomplete;

/// Long enough for a burst of reconciles to meet, short against any call.
const WINDOW: Duration = Duration::from_millis(20);
/// Ids of one call.
const BATCH: usize = 500;

type Answer<T> = Result<T, CloudError>;
type Waiting<T> = HashMap<String, Vec<oneshot::Sender<Answer<T>>>>;

/// Questions that wait for the window to close.
#[derive(Debug)]
pub(crate) struct Gather<T> {
    waiting: Arc<Mutex<Waiting<T>>>,
}

impl<T> Default for Gather<T> {
    fn default() -> Self {
        Self {
            waiting: Arc::default(),
        }
    }
}

impl<T: Clone + Send + 'static> Gather<T> {
    /// The answer about one id. `call` answers for many ids at once; of those who ask in one
    /// window, the first one's is used.
    pub(crate) async fn ask<F, A>(&self, id: String, call: F) -> Answer<T>
    where
        F: Fn(Vec<String>) -> A + Send + Sync + 'static,
        A: Future<Output = HashMap<String, Answer<T>>> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let first = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let first = waiting.is_empty();
            waiting.entry(id).or_default().push(sender);
            first
        };
        if first {
            tokio::spawn(flush(Arc::clone(&self.waiting), call));
        }
        // The sender is dropped without an answer only when the call panicked.
        receiver
            .await
            .unwrap_or_else(|_| Err(incomplete("call for several instances")))
    }
}

async fn flush<T, F, A>(waiting: Arc<Mutex<Waiting<T>>>, call: F)
where
    T: Clone,
    F: Fn(Vec<String>) -> A,
    A: Future<Output = HashMap<String, Answer<T>>>,
{
    tokio::time::sleep(WINDOW).await;
    let mut gathered = std::mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner));
    let mut ids: Vec<String> = gathered.keys().cloned().collect();
    ids.sort_unstable();
    for batch in ids.chunks(BATCH) {
        let mut answers = call(batch.to_vec()).await;
        for id in batch {
            let answer = answers
                .remove(id)
                .unwrap_or_else(|| Err(incomplete(&format!("answer about {id}"))));
            for sender in gathered.remove(id).unwrap_or_default() {
                // Somebody who no longer waits needs no answer.
                drop(sender.send(answer.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn questions_of_one_window_share_a_call_and_a_missing_answer_is_an_error() {
        let gather = Gather::<usize>::default();
        let calls = Arc::new(AtomicUsize::new(0));
        let ask = |id: &str| {
            let calls = Arc::clone(&calls);
            gather.ask(id.to_owned(), move |ids| {
                calls.fetch_add(1, Ordering::Relaxed);
                let known = ids.iter().filter(|id| *id != "unknown");
                let answers = known.map(|id| (id.clone(), Ok(id.len()))).collect();
                std::future::ready(answers)
            })
        };
        let (a, b, c, unknown) = tokio::join!(ask("a"), ask("bb"), ask("a"), ask("unknown"));
        assert_eq!((a.ok(), b.ok(), c.ok()), (Some(1), Some(2), Some(1)));
        assert!(unknown.is_err());
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(ask("ccc").await.ok(), Some(3));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_call_that_panics_answers_with_an_error() {
        let gather = Gather::<usize>::default();
        let answer = gather
            .ask("a".to_owned(), |_| async { panic!("a bug in the call") })
            .await;
        assert!(answer.is_err());
        let next = gather.ask("a".to_owned(), |ids| {
            std::future::ready(ids.into_iter().map(|id| (id, Ok(7))).collect())
        });
        assert_eq!(next.await.ok(), Some(7));
    }
}
