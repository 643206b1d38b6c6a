//! Ports of the host that pods claim for themselves.
//!
//! Source: provisioning specification 6.14.

use millwright_model::pod::HostPort;
use rustc_hash::FxHashMap;

use crate::problem::ord;

pub(crate) type PortsOrd = u32;

/// Distinct lists of ports.
#[derive(Debug, Default)]
pub(crate) struct PortLists {
    lists: Vec<Vec<HostPort>>,
    index: FxHashMap<Vec<HostPort>, PortsOrd>,
}

impl PortLists {
    pub(crate) const fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// The ordinal of a list; `None` for an empty one.
    pub(crate) fn intern(&mut self, ports: &[HostPort]) -> Option<PortsOrd> {
        if ports.is_empty() {
            return None;
        }
        let mut sorted = ports.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let next = ord(self.lists.len());
        Some(*self.index.entry(sorted).or_insert_with_key(|ports| {
            self.lists.push(ports.clone());
            next
        }))
    }

    pub(crate) fn get(&self, ports: PortsOrd) -> &[HostPort] {
        &self.lists[ports as usize]
    }
}

/// Whether two pods with these ports cannot share a host.
pub(crate) fn conflict(a: &[HostPort], b: &[HostPort]) -> bool {
    let any = |port: &HostPort| matches!(&*port.ip, "0.0.0.0" | "::" | "");
    let clash = |a: &HostPort, b: &HostPort| {
        a.port == b.port && a.protocol == b.protocol && (a.ip == b.ip || any(a) || any(b))
    };
    a.iter().any(|a| b.iter().any(|b| clash(a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_clash_on_equal_number_protocol_and_overlapping_address() {
        let port = |ip: &str, port, protocol: &str| HostPort {
            ip: ip.into(),
            port,
            protocol: protocol.into(),
        };
        let web = [port("10.0.0.1", 80, "TCP")];
        for (other, clash) in [
            (port("10.0.0.1", 80, "TCP"), true),
            (port("0.0.0.0", 80, "TCP"), true),
            (port("::", 80, "TCP"), true),
            (port("10.0.0.2", 80, "TCP"), false),
            (port("10.0.0.1", 80, "UDP"), false),
            (port("10.0.0.1", 81, "TCP"), false),
        ] {
            assert_eq!(
                conflict(&web, std::slice::from_ref(&other)),
                clash,
                "{other:?}"
            );
            assert_eq!(conflict(&[other], &web), clash);
        }
    }
}
