//! The client against a coordinator and homes in the test's process, which follow the protocol or break it.

mod cluster;
mod group;
mod hostile;
mod remote;
