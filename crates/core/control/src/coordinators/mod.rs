//! Finds the coordinator that leads: a cluster has one coordinator or several, and one of them leads. Clients, workers
//! and `spdl-ctl` use it.
//!
//! [`Addresses`] are the configured addresses, and [`LeaderDiscovery`] chooses the next one to ask.

mod discovery;

use std::{fmt, str::FromStr};

pub use discovery::LeaderDiscovery;

/// The most coordinators of a cluster.
pub const MAX_COORDINATORS: usize = 64;
/// The most bytes of a host name (RFC 1035), a colon and a port.
pub const MAX_ADDRESS_BYTES: usize = 253 + 1 + 5;

/// The addresses of a cluster's coordinators: `HOST:PORT`, several separated by commas. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(Vec<String>);

/// A text that does not contain addresses of coordinators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the texts say what the fields are")]
pub enum AddressError {
    /// The text is empty.
    #[error("is missing; give the coordinator's address as HOST:PORT, several separated by commas")]
    Missing,
    /// A part of it is not an address.
    #[error("is `{address}`, not HOST:PORT")]
    NotAnAddress { address: String },
    /// It has too many addresses.
    #[error("has {actual} addresses; the most is {MAX_COORDINATORS}")]
    TooMany { actual: usize },
}

impl Addresses {
    /// Returns the addresses in the order given.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl FromStr for Addresses {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let mut addresses: Vec<String> = Vec::new();
        for address in text.split(',').map(str::trim).filter(|address| !address.is_empty()) {
            if !is_address(address) {
                return Err(AddressError::NotAnAddress { address: address.to_owned() });
            }
            if !addresses.iter().any(|known| known == address) {
                addresses.push(address.to_owned());
            }
        }
        match addresses.len() {
            0 => Err(AddressError::Missing),
            actual if actual > MAX_COORDINATORS => Err(AddressError::TooMany { actual }),
            _ => Ok(Self(addresses)),
        }
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

/// Whether the text is `HOST:PORT` with a port that a process can listen on.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c.is_control() || c == ',');
    is_host && text.len() <= MAX_ADDRESS_BYTES && port.parse::<u16>().is_ok_and(|port| port != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written_and_each_once() {
        let addresses: Addresses = " head:7000, [::1]:7001,head:7000,".parse().unwrap();
        assert_eq!(addresses.iter().collect::<Vec<_>>(), ["head:7000", "[::1]:7001"]);
        assert_eq!(addresses.to_string(), "head:7000,[::1]:7001");
    }

    #[test]
    fn what_is_no_address_is_named() {
        for text in ["head", ":7000", "head:0", "head:port", "head:70000", "he ad:1", &format!("{}:1", "h".repeat(300))]
        {
            let error = format!("a:1,{text}").parse::<Addresses>().unwrap_err();
            assert_eq!(error, AddressError::NotAnAddress { address: text.to_owned() });
        }
        assert_eq!(" , ".parse::<Addresses>(), Err(AddressError::Missing));
        let many = (1..=65).map(|port| format!("h:{port}")).collect::<Vec<_>>().join(",");
        assert_eq!(many.parse::<Addresses>(), Err(AddressError::TooMany { actual: 65 }));
    }
}
