//! Test support: builders, strategies, the naive reference solver
