//! The AWS adapter, through the real SDK, against the simulated AWS: every method of the provider
//! port, and what must hold when calls are throttled, answers are lost and leaders change.

#[path = "provider/classes.rs"]
mod classes;
#[path = "provider/faults.rs"]
mod faults;
#[path = "provider/instances.rs"]
mod instances;
#[path = "provider/launches.rs"]
mod launches;
#[path = "provider/rig.rs"]
mod rig;
