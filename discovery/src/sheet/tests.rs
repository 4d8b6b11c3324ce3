use super::testing::Numbered;
use super::*;
use std::collections::BTreeMap;

fn put(sheet: &mut Sheet<Numbered>, key: u64, text: &str) {
    sheet.put(Numbered(key, text.into()), text.len());
}

fn read(sheet: &mut Sheet<Numbered>) -> String {
    let entries = sheet.entries();
    let (bytes, all) = (entries.bytes(), entries.collect::<Vec<_>>().concat());
    assert_eq!(bytes, all.len());
    String::from_utf8(all).unwrap()
}

#[test]
fn a_sheet_reads_like_the_map_of_what_was_put_and_not_removed() {
    let (mut sheet, mut map) = (Sheet::default(), BTreeMap::new());
    let mut state = 7u64;
    for step in 0..5000 {
        // Knuth's MMIX generator: the same history in every run.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (state >> 33) % 300;
        if (state >> 20).is_multiple_of(4) {
            sheet.remove(&key);
            map.remove(&key);
        } else {
            let text = format!("[{key},{}]", "9".repeat(((state >> 40) % 400) as usize + 1));
            put(&mut sheet, key, &text);
            map.insert(key, text);
        }
        if step % 50 == 0 {
            let expected: Vec<&str> = map.values().map(String::as_str).collect();
            assert_eq!((read(&mut sheet), sheet.len()), (expected.join(","), map.len()), "at step {step}");
        }
    }
    assert!(sheet.pages.len() > 2, "the history is too small to split pages");
}

#[test]
fn a_sheet_is_read_on_from_any_key_there_or_not() {
    let mut sheet = Sheet::default();
    let after = |sheet: &Sheet<Numbered>, key: Option<&u64>| {
        let mut text = Vec::new();
        let last = sheet.write_after(key, &mut text);
        (String::from_utf8(text).unwrap(), last)
    };
    assert_eq!(after(&sheet, None), (String::new(), None));
    for key in (0..3000).step_by(3) {
        put(&mut sheet, key, &format!("{key},{}", "0".repeat(50)));
    }
    let (mut all, mut last) = after(&sheet, None);
    let mut pieces = 1;
    while let (text, Some(next)) = after(&sheet, last.as_ref()) {
        (all, last, pieces) = (all + &text, Some(next), pieces + 1);
    }
    assert_eq!((all[1..].to_owned(), last), (read(&mut sheet), Some(2997)));
    assert!(pieces > 2, "too few pieces");
    for key in 0..3000 {
        let next = (key / 3 + 1) * 3;
        let (text, last) = after(&sheet, Some(&key));
        assert_eq!(text.starts_with(&format!(",{next},")), next < 3000, "after {key}");
        assert_eq!((text.is_empty(), last.is_none()), (next >= 3000, next >= 3000), "after {key}");
    }
}

#[test]
fn what_is_read_does_not_change_while_it_is() {
    let mut sheet = Sheet::default();
    for key in 0..1000 {
        put(&mut sheet, key, &"0".repeat(1000));
    }
    let (before, mut entries) = (read(&mut sheet), sheet.entries());
    let first = entries.next().unwrap();
    assert!(before.len() > SHORT && first.len() < 2 * PIECE);
    for key in 0..1000 {
        if key % 3 == 0 {
            sheet.remove(&key);
        } else {
            put(&mut sheet, key, "1");
        }
    }
    let rest: Vec<Bytes> = entries.collect();
    assert_eq!([&first[..], &rest.concat()].concat(), before.as_bytes());
    assert_eq!(read(&mut sheet), ["1"; 666].join(","));
}

#[test]
fn the_text_of_a_short_list_is_kept_until_something_changes() {
    let mut sheet = Sheet::default();
    let text = |sheet: &mut Sheet<Numbered>| sheet.entries().next().map(|text| (text.as_ptr(), text));
    assert_eq!(text(&mut sheet), None);
    put(&mut sheet, 1, "1");
    put(&mut sheet, 2, "2");
    let kept = text(&mut sheet).unwrap();
    assert_eq!((text(&mut sheet).as_ref(), &kept.1[..]), (Some(&kept), &b"1,2"[..]));
    put(&mut sheet, 2, "3");
    assert_eq!(read(&mut sheet), "1,3");
    sheet.remove(&1);
    assert_eq!(read(&mut sheet), "3");
}

#[test]
fn keys_that_rise_leave_pages_full() {
    let mut sheet = Sheet::default();
    for key in 0..10_000 {
        put(&mut sheet, key, "0");
    }
    assert_eq!(sheet.pages.len(), 10_000usize.div_ceil(PAGE));
}

#[test]
fn an_entry_larger_than_a_piece_is_a_piece_by_itself() {
    let mut sheet = Sheet::default();
    let large = "8".repeat(PIECE * 2);
    for key in [2, 1, 3] {
        put(&mut sheet, key, if key == 2 { &large } else { "0" });
    }
    assert_eq!(read(&mut sheet), format!("0,{large},0"));
    for key in [2, 1, 3] {
        sheet.remove(&key);
    }
    assert_eq!((read(&mut sheet), sheet.len()), (String::new(), 0));
}
