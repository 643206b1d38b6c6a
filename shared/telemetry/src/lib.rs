//! The metric catalogue and tracing set-up
