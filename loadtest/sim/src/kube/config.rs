//! Settings of the simulated API server.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How the server behaves; the defaults suit tests and demonstrations.
#[derive(Debug, Clone)]
pub struct KubeSimConfig {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Version that `/version` answers with.
    pub version: String,
    /// Changes kept per resource: what a watch can be resumed from.
    pub history_max: usize,
    /// Changes a watcher may fall behind before it is cut off.
    pub watch_buffer_max: usize,
    /// Bytes of a request's body (the real one takes 3 MiB).
    pub body_max: usize,
    /// Time between two bookmarks of a watch that allows them.
    pub bookmark_every: Duration,
}

impl Default for KubeSimConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            version: "v1.36.3".to_owned(),
            history_max: 20_000,
            watch_buffer_max: 20_000,
            body_max: 3 << 20,
            bookmark_every: Duration::from_secs(5),
        }
    }
}
