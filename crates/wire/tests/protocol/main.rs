//! How processes talk: the bytes of messages, certificates, QUIC connections and the local channel.

mod arbitrary;
mod certs;
mod codec;
mod group;
mod home;
mod job_form;
mod killed;
mod local;
mod quic;
mod renewal;
