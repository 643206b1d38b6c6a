//! The simulator through its port, with hand-written requests.
//!
//! The SDKs' side is covered elsewhere (boto3 in `tests/`, the Rust SDK in `cloud-aws`); here
//! are the behaviours, on a clock that the test moves.

mod client;
mod consistency;
mod control;
mod fleet;
mod instances;
mod queue;
mod services;
