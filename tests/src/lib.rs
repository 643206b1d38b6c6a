//! What the integration tests share: a real control plane, real tools, processes that
//! are watched, and waits that say what they waited for.
//!
//! The tests themselves are in `tests/`, one target per level (each target links
//! everything, so they are few and have modules). This crate must not know what is
//! tested: no controller, no simulator, no API type of ours.
//!
//! # Absence
//!
//! A control plane or a tool that can be neither found nor built is [`Absent`]: the test
//! prints `skipped: REASON` and passes, unless `REQUIRE_APISERVER=1` (set by `make test`
//! and CI) makes absence a failure. A control plane that is there but does not start is
//! always a failure.
//!
//! ```no_run
//! # use millwright_tests::ControlPlane;
//! # async fn test() -> anyhow::Result<()> {
//! let Some(plane) = ControlPlane::shared().await else { return Ok(()) };
//! let client = plane.admin().await?;
//! let namespace = plane.namespace(&client, "example").await?;
//! # Ok(())
//! # }
//! ```

mod absence;
mod control_plane;
mod costs;
mod eventually;
mod service;
pub mod tools;

pub use absence::{Absent, present_or_skip};
pub use control_plane::{
    Component, ControlPlane, ControlPlaneError, ControlPlaneOptions, StaticToken,
};
pub use costs::ProcessCosts;
pub use eventually::eventually;
pub use service::Service;
