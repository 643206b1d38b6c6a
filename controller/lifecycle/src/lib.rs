//! NodeClaim and Node state machines, purely
