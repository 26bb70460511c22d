//! spdl-coord: jobs, sessions, membership and placement
