//! Logs: one line per event, JSON for machines, plain for people.

use tracing_subscriber::{EnvFilter, fmt};

/// How lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// JSON, one object per line.
    Json,
    /// Plain text.
    Plain,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The level is unknown.
    #[error("log level \"{0}\" is none of error, warn, info, debug, trace")]
    Level(String),
    /// Logging was set up before.
    #[error("logging is set up already")]
    Twice,
}

/// Sends events of this level and above to standard error. Our own crates follow the level;
/// libraries stay at `warn` unless the level is `trace`.
///
/// # Errors
/// When the level is unknown, or logging was set up before.
pub fn init_tracing(level: &str, format: LogFormat) -> Result<(), SetupError> {
    if !["error", "warn", "info", "debug", "trace"].contains(&level) {
        return Err(SetupError::Level(level.to_owned()));
    }
    let libraries = if level == "trace" { "debug" } else { "warn" };
    let ours = [
        "cloud",
        "cloud_aws",
        "controller",
        "lifecycle",
        "reconcile",
        "scheduling",
        "state",
    ];
    let mut directives = vec![libraries.to_owned()];
    directives.extend(ours.iter().map(|name| format!("millwright_{name}={level}")));
    let filter = EnvFilter::new(directives.join(","));
    let builder = fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false);
    let done = match format {
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
        LogFormat::Plain => builder.try_init(),
    };
    done.map_err(|_| SetupError::Twice)
}
