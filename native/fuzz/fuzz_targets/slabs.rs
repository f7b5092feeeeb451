//! Regions of slabs: against bits looked up one by one.
#![no_main]

use gdbext_native::columns::slab_regions;
use gdbext_native_fuzz::Reader;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut from = Reader(data);
    let (slabs, groups) = (from.upto(6), from.upto(4));
    let (mut start, mut region, mut count) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..slabs {
        start.push(from.hostile());
        region.push(from.hostile());
        count.push(if from.one_in(8) {
            from.hostile() as u32
        } else {
            from.upto(255) as u32 % (64 * groups as u32 + 1)
        });
    }
    let short = usize::from(from.one_in(8));
    let bitmaps: Vec<u64> = (0..(slabs * groups).saturating_sub(short)).map(|_| from.hostile()).collect();
    let total: u64 = count.iter().map(|&one| u64::from(one)).sum();
    let room = if from.one_in(4) { from.upto(255) } else { total.min(2000) as usize };
    let (mut address, mut free) = (vec![0; room], vec![0; room]);
    let found = slab_regions(&start, &region, &count, &bitmaps, groups, &mut address, &mut free);
    let sound =
        bitmaps.len() >= slabs * groups && total <= room as u64 && count.iter().all(|&one| one as usize <= 64 * groups);
    assert_eq!(found, if sound { Some(total as usize) } else { None });
    if sound {
        let mut row = 0;
        for slab in 0..slabs {
            for at in 0..count[slab] as usize {
                let place = u128::from(start[slab]) + u128::from(region[slab]) * at as u128;
                assert_eq!(address[row], place as u64);
                assert_eq!(free[row] == 1, bitmaps[slab * groups + at / 64] & 1 << (at % 64) != 0);
                row += 1;
            }
        }
    }
});
