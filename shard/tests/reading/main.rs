//! What is read of a dataset: stores, manifests and record indexes, with golden files, hostile bytes and damage; and job files.

mod credentials;
mod examples;
mod index;
mod manifest;
mod sequences;
mod store;
mod tls;
