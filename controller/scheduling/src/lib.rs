//! The packing core: from a cluster snapshot to a plan, purely
