//! The load tester and the demo
