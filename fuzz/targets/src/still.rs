//! Stills of AVIF and HEIC.

use spdl_media::Still;

/// Checks that what is read of a still fits together.
pub(crate) fn read(data: &[u8]) {
    let Ok(still) = Still::open(data) else { return };
    assert!(Still::is_one(data));
    let rows = still.tiles.len() as u64 / u64::from(still.columns);
    assert_eq!(rows * u64::from(still.columns), still.tiles.len() as u64);
    let covered = [u64::from(still.columns), rows];
    for (side, count) in covered.into_iter().enumerate() {
        assert!(
            still.size[side] > 0 && u64::from(still.tile_size[side]) * count >= u64::from(still.size[side]),
            "{still:?}"
        );
    }
    assert!(still.tiles.iter().all(|tile| tile.config < still.configs.len()));
    assert!(still.tiles.iter().map(|tile| tile.bytes.len()).sum::<usize>() <= data.len());
    assert!(still.configs.iter().map(Vec::len).sum::<usize>() <= data.len());
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    vec![
        include_bytes!("../../../crates/media/tests/stills/plain.avif").to_vec(),
        include_bytes!("../../../crates/media/tests/stills/grid.heic").to_vec(),
    ]
}
