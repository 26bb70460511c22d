//! Stateless resets (RFC 9000, section 10.3) after a restart: a server shares keys with its predecessor on the same
//! port. If a process is killed and started again at once, the connections of its predecessor end at their next packet,
//! and not after the idle timeout.

use std::{fs, net::SocketAddr, sync::Arc};

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use quinn::EndpointConfig;
use quinn_proto::HashedConnectionIdGenerator;

use crate::{certs::Identity, node};

const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Makes the endpoint end the connections of servers that had the same private key, address and host name since the
/// machine booted. Other servers share no keys with it, even if they have the same certificate: an attacker who could
/// have a packet of one answered by the other would learn how to end its connections (RFC 9000, section 21.11).
pub(super) fn share_with_predecessors(config: &mut EndpointConfig, identity: &Identity, address: SocketAddr) {
    let (Ok(node), Ok(host)) = (node::this_node(None), fs::read_to_string(HOST_NAME)) else { return };
    let derive = |purpose: &str| {
        let mut context = hmac::Context::with_key(identity.secret());
        for part in [purpose, &node.0, &host, &address.to_string()] {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part.as_bytes());
        }
        context.sign()
    };
    config.reset_key(Arc::new(hmac::Key::new(HMAC_SHA256, derive("stateless reset").as_ref())));
    // Packets whose connection ID this key did not make are dropped without a reset.
    let ids = derive("connection IDs");
    let ids = ids.as_ref().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
}
