//! Records: round trip, and any bytes give an error rather than a panic.

use super::*;
use proptest::prelude::*;

fn blob(max: usize) -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn id() -> impl Strategy<Value = ObjId> {
    (any::<i32>(), blob(HANDLE_BYTES_MAX), any::<i64>()).prop_map(|(kind, bytes, btime_ns)| ObjId {
        kh: KernelHandle { kind, bytes: HandleBytes::from(&bytes[..]) },
        btime_ns,
    })
}

fn name() -> impl Strategy<Value = Bytes> {
    "[a-z]{1,255}".prop_map(Bytes::from)
}

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0u32..1_000_000_000).prop_map(|(secs, nanos)| Timestamp { secs, nanos })
}

fn owned() -> impl Strategy<Value = Owned> {
    (0u32..=0o7777, any::<u32>(), any::<u32>(), time(), time())
        .prop_map(|(mode, uid, gid, atime, mtime)| Owned { mode, uid, gid, atime, mtime })
}

fn birth() -> impl Strategy<Value = Birth> {
    let kind = prop_oneof![Just(Kind::File), Just(Kind::Dir), Just(Kind::Symlink), Just(Kind::CharDev)];
    (kind, owned(), any::<(u32, u32)>(), any::<u64>()).prop_map(|(kind, owned, rdev, fileid)| {
        let target = if kind == Kind::Symlink { Bytes::from_static(b"../to") } else { Bytes::new() };
        Birth { kind, owned, rdev, target, fileid }
    })
}

fn fact() -> impl Strategy<Value = Fact> {
    prop_oneof![
        (id(), name(), id()).prop_map(|(dir, name, obj)| Fact::Bind { dir, name, obj }),
        (id(), name(), id()).prop_map(|(dir, name, obj)| Fact::Unbind { dir, name, obj }),
        (id(), birth()).prop_map(|(obj, birth)| Fact::Born { obj, birth }),
        (id(), any::<u32>()).prop_map(|(obj, nlink)| Fact::Links { obj, nlink }),
        (id(), owned()).prop_map(|(obj, owned)| Fact::Attrs { obj, owned }),
        (id(), time()).prop_map(|(obj, mtime)| Fact::Mtime { obj, mtime }),
        (id(), 0..=i64::MAX as u64).prop_map(|(obj, size)| Fact::Size { obj, size }),
        (id(), 0u64..1 << 62, blob(5000)).prop_map(|(obj, offset, bytes)| Fact::Data { obj, offset, bytes }),
        (id(), any::<u32>()).prop_map(|(obj, keep)| Fact::Durable { obj, keep }),
        (id(), name(), proptest::option::of(blob(2000))).prop_map(|(obj, name, value)| Fact::Xattr {
            obj,
            name,
            value
        }),
        blob(3000).prop_map(|bytes| Fact::Note { bytes }),
        (id(), 0u64..1 << 62, 0u64..1 << 62).prop_map(|(obj, offset, len)| Fact::Zero { obj, offset, len }),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    (any::<u64>(), proptest::collection::vec(fact(), 0..8)).prop_map(|(seq, facts)| Record { seq, facts })
}

proptest! {
    #[test]
    fn round_trip(r in record()) {
        let bytes = r.encode().unwrap();
        prop_assert_eq!(Record::decode(&bytes).unwrap(), r);
    }

    #[test]
    fn the_parts_are_the_whole(r in record()) {
        let parts = r.encode_parts().unwrap();
        prop_assert_eq!(parts.slices().concat(), r.encode().unwrap());
    }

    #[test]
    fn any_bytes_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Record::decode(&bytes);
        if let Some(first) = bytes.first_mut() {
            *first = RECORD_VERSION;
            let _ = Record::decode(&bytes);
        }
    }

    #[test]
    fn a_damaged_record_is_an_error_or_another_valid_record(r in record(), at in any::<usize>(), with in any::<u8>()) {
        let mut bytes = r.encode().unwrap();
        let at = at % bytes.len();
        bytes[at] = with;
        if let Ok(other) = Record::decode(&bytes) {
            prop_assert!(other.encode().is_ok());
        }
    }

    #[test]
    fn a_cut_record_is_an_error(r in record(), at in any::<usize>()) {
        let bytes = r.encode().unwrap();
        prop_assert!(Record::decode(&bytes[..at % bytes.len()]).is_err());
    }
}

#[test]
fn long_data_is_not_copied() {
    let obj = ObjId { kh: KernelHandle { kind: 1, bytes: b"12345678"[..].into() }, btime_ns: 1 };
    let long = Bytes::from(vec![7; LONG_BYTES]);
    let data = |bytes: &Bytes| Fact::Data { obj: obj.clone(), offset: 0, bytes: bytes.clone() };
    let xattr = Fact::Xattr { obj: obj.clone(), name: "n".into(), value: Some(long.clone()) };
    for (facts, apart) in [
        (vec![data(&long), Fact::Note { bytes: long.clone() }, data(&long.slice(1..))], 2),
        // Where something else is long all is copied.
        (vec![data(&long), xattr], 0),
    ] {
        let record = Record { seq: 1, facts };
        let parts = record.encode_parts().unwrap();
        let there = parts.slices().iter().filter(|s| s.as_ptr() == long.as_ptr()).count();
        assert_eq!((parts.slices().len(), there), (2 * apart + 1, apart));
        assert_eq!(parts.slices().concat(), record.encode().unwrap());
    }
}

#[test]
fn an_announced_length_beyond_the_input_is_an_error() {
    // version, seq 0, one fact, Note (variant 10), a length of 2^60
    let bytes = [RECORD_VERSION, 0, 1, 10, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert!(matches!(Record::decode(&bytes), Err(RecordError::Malformed(_))));
    // 2^60 facts
    let bytes = [RECORD_VERSION, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert!(matches!(Record::decode(&bytes), Err(RecordError::Malformed(_))));
}

#[test]
fn out_of_range_is_refused_on_both_ways() {
    let obj = ObjId { kh: KernelHandle { kind: 1, bytes: b"12345678"[..].into() }, btime_ns: 1 };
    for name in ["", ".", "..", "a/b", "a\0"] {
        let fact =
            Fact::Bind { dir: obj.clone(), name: Bytes::from_static(name.as_bytes()), obj: obj.clone() };
        let r = Record { seq: 1, facts: vec![fact] };
        assert!(matches!(r.encode(), Err(RecordError::Range(_))), "{name:?}");
        let bytes = postcard::to_extend(&r, vec![RECORD_VERSION]).unwrap();
        assert!(matches!(Record::decode(&bytes), Err(RecordError::Range(_))), "{name:?}");
    }
    assert_eq!(Record::decode(&[]), Err(RecordError::Empty));
    assert_eq!(Record::decode(&[9, 0, 0]), Err(RecordError::Version(9)));
    let mut long = Record::default().encode().unwrap();
    long.push(0);
    assert_eq!(Record::decode(&long), Err(RecordError::Trailing(1)));
}

/// A record as the versions before `Zero` wrote it: new facts stand behind the old ones, whose numbers stay.
#[test]
fn records_of_earlier_versions_are_read() {
    let obj = ObjId { kh: KernelHandle { kind: 1, bytes: b"12345678"[..].into() }, btime_ns: -1 };
    // version, seq 7, facts: Size (6), Data (7), Durable (8), Note (10)
    let handle = [2, 8, b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8', 1];
    let mut bytes = vec![RECORD_VERSION, 7, 4, 6];
    bytes.extend_from_slice(&handle);
    bytes.extend_from_slice(&[5, 7]);
    bytes.extend_from_slice(&handle);
    bytes.extend_from_slice(&[3, 2, b'h', b'i', 8]);
    bytes.extend_from_slice(&handle);
    bytes.extend_from_slice(&[1, 10, 1, 9]);
    let facts = vec![
        Fact::Size { obj: obj.clone(), size: 5 },
        Fact::Data { obj: obj.clone(), offset: 3, bytes: Bytes::from_static(b"hi") },
        Fact::Durable { obj, keep: 1 },
        Fact::Note { bytes: Bytes::from_static(&[9]) },
    ];
    assert_eq!(Record::decode(&bytes).unwrap(), Record { seq: 7, facts });
}
