//! spdl-cluster
