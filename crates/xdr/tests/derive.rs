//! The derive macros and the primitive representations, against RFC 4506.

use landfast_xdr::{Bytes, Decode, Encode, Error, Reader};
use proptest::prelude::*;

#[derive(Debug, Clone, PartialEq, Encode, Decode)]
struct Pair {
    left: u32,
    data: Bytes,
}

#[derive(Debug, Clone, PartialEq, Encode, Decode)]
enum Choice {
    #[xdr(tag = 1)]
    One(u64, bool),
    #[xdr(tag = 2)]
    Two { list: Vec<Pair>, next: Option<i32> },
    #[xdr(tag = 7)]
    Seven,
}

#[test]
fn rfc4506_4_10_opaque_is_padded_with_zeroes() {
    let p = Pair { left: 1, data: Bytes::from_static(b"abcde") };
    assert_eq!(p.to_bytes().as_ref(), b"\0\0\0\x01\0\0\0\x05abcde\0\0\0");
}

#[test]
fn rfc4506_4_10_padding_that_is_not_zero_is_refused() {
    assert_eq!(Pair::from_bytes(Bytes::from_static(b"\0\0\0\x01\0\0\0\x01aXYZ")), Err(Error::Padding));
}

#[test]
fn rfc4506_4_15_an_unknown_discriminant_is_an_error() {
    assert_eq!(
        Choice::from_bytes(Bytes::from_static(&[0, 0, 0, 9])),
        Err(Error::BadTag { name: "Choice", value: 9 })
    );
}

#[test]
fn a_count_of_four_billion_allocates_nothing() {
    let r = Vec::<u32>::decode(&mut Reader::new(Bytes::from_static(&[0xff; 8])));
    assert!(matches!(r, Err(Error::Short(_))));
}

#[derive(Debug, PartialEq, Encode, Decode)]
struct Bounded {
    #[xdr(max = 3)]
    name: Bytes,
    #[xdr(max = 2)]
    list: Vec<Choice>,
}

#[derive(Debug, PartialEq, Encode, Decode)]
enum Either {
    #[xdr(tag = 1)]
    Few(#[xdr(max = 2)] Vec<u32>),
}

#[test]
fn rfc4506_4_13_what_is_longer_than_its_field_allows_is_refused() {
    let value = |name, elements| {
        let list = vec![Choice::Seven; elements];
        Bounded { name: Bytes::from(vec![b'a'; name]), list }
    };
    let decode = |value: Bounded| Bounded::from_bytes(value.to_bytes());
    assert_eq!(decode(value(3, 2)), Ok(value(3, 2)));
    assert_eq!(decode(value(4, 2)), Err(Error::TooLong { len: 4, max: 3 }));
    assert_eq!(decode(value(3, 3)), Err(Error::TooLong { len: 3, max: 2 }));
    assert_eq!(
        Either::from_bytes(Either::Few(vec![0; 3]).to_bytes()),
        Err(Error::TooLong { len: 3, max: 2 })
    );
}

#[test]
fn copied_opaque_has_memory_of_its_own() {
    let record = Bytes::from(vec![7; 64]).to_bytes();
    let copy = Reader::new(record.clone()).opaque_copied(64).expect("opaque data");
    assert_eq!(copy, record[4..]);
    assert!(!record.as_ptr_range().contains(&copy.as_ptr()));
}

#[test]
fn opaque_shares_the_records_memory() {
    let record = Pair { left: 0, data: Bytes::from(vec![7; 64]) }.to_bytes();
    let p = Pair::from_bytes(record.clone()).expect("round trip");
    assert_eq!(p.data.as_ptr(), record[8..].as_ptr());
}

fn pair() -> impl Strategy<Value = Pair> {
    (any::<u32>(), proptest::collection::vec(any::<u8>(), 0..20))
        .prop_map(|(left, d)| Pair { left, data: d.into() })
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        (any::<u64>(), any::<bool>()).prop_map(|(a, b)| Choice::One(a, b)),
        (proptest::collection::vec(pair(), 0..4), any::<Option<i32>>())
            .prop_map(|(list, next)| Choice::Two { list, next }),
        Just(Choice::Seven),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(c in choice()) {
        prop_assert_eq!(Choice::from_bytes(c.to_bytes()), Ok(c));
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error(b in proptest::collection::vec(any::<u8>(), 0..64)) {
        if let Ok(c) = Choice::from_bytes(Bytes::from(b.clone())) {
            prop_assert_eq!(c.to_bytes(), Bytes::from(b));
        }
    }

    #[test]
    fn a_cut_stream_is_an_error(c in choice(), cut in 1usize..16) {
        let b = c.to_bytes();
        if cut <= b.len() {
            prop_assert!(Choice::from_bytes(b.slice(..b.len() - cut)).is_err());
        }
    }
}
