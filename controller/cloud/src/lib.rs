//! The provider port: offerings, prices, launch policy, without a socket
