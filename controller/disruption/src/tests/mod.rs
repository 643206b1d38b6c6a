//! The cases of disruption specification Appendix A that concern decisions, on small fleets.

mod candidates;
mod emptiness;
mod fixtures;
mod multi_node;
mod properties;
mod search;
mod single_node;
