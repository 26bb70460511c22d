//! Determines which node this process runs on.

use std::io;

use spdl_types::NodeId;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Returns the node: `setting` if it is not empty (`SPDL_NODE`), otherwise the kernel's boot id. All processes and
/// containers of a machine have the same boot id, and no two machines have.
///
/// Returns an error if there is no setting and the boot id cannot be read.
pub fn this_node(setting: Option<&str>) -> io::Result<NodeId> {
    match setting {
        Some(name) if !name.is_empty() => Ok(NodeId(name.to_owned())),
        _ => {
            let boot_id = std::fs::read_to_string(BOOT_ID)
                .map_err(|error| io::Error::new(error.kind(), format!("`{BOOT_ID}`: {error}; set SPDL_NODE")))?;
            Ok(NodeId(boot_id.trim().to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_wins_and_the_boot_id_is_the_same_each_time() {
        assert_eq!(this_node(Some("a")).unwrap(), NodeId("a".into()));
        let node = this_node(None).unwrap();
        assert!(!node.0.is_empty());
        assert_eq!(this_node(Some("")).unwrap(), node);
    }
}
