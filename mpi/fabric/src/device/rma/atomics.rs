//! Atomic operations on remote memory, which the owner of the memory applies one after
//! the other.

use crate::device::connect::layout::BLOCK;
use crate::device::endpoint::EndpointCore;
use crate::device::operation::{OneSided, Refusal};
use crate::device::protocol::frame::Frame;
use crate::device::resource::buffers::ArrivedPayload;
use crate::device::resource::buffers::Buffer;
use crate::device::resource::completion::{Class, CompletionTicket, error};
use crate::device::rma::onesided::RmaTarget;

/// Maximum number of bytes of operands (of operand and comparand each).
///
/// Both fit in one frame, whatever way it takes.
pub const LONGEST: usize = BLOCK / 2;

/// Operations, numbered as libfabric numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "libfabric's names")]
pub enum AtomicOp {
    Min,
    Max,
    Sum,
    Prod,
    Lor,
    Land,
    Bor,
    Band,
    Lxor,
    Bxor,
    Read,
    Write,
    Cswap,
    CswapNe,
    CswapLe,
    CswapLt,
    CswapGe,
    CswapGt,
    Mswap,
}

/// Types, numbered as libfabric numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "libfabric's names")]
pub enum Type {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
    C32,
    C64,
}

impl AtomicOp {
    const ALL: [AtomicOp; 19] = [
        AtomicOp::Min,
        AtomicOp::Max,
        AtomicOp::Sum,
        AtomicOp::Prod,
        AtomicOp::Lor,
        AtomicOp::Land,
        AtomicOp::Bor,
        AtomicOp::Band,
        AtomicOp::Lxor,
        AtomicOp::Bxor,
        AtomicOp::Read,
        AtomicOp::Write,
        AtomicOp::Cswap,
        AtomicOp::CswapNe,
        AtomicOp::CswapLe,
        AtomicOp::CswapLt,
        AtomicOp::CswapGe,
        AtomicOp::CswapGt,
        AtomicOp::Mswap,
    ];

    /// Returns the operation of a number.
    pub fn from_number(number: u64) -> Option<AtomicOp> {
        AtomicOp::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns whether the operation compares.
    pub fn compares(self) -> bool {
        self as u8 >= AtomicOp::Cswap as u8
    }
}

impl Type {
    const ALL: [(Type, usize); 12] = [
        (Type::I8, 1),
        (Type::U8, 1),
        (Type::I16, 2),
        (Type::U16, 2),
        (Type::I32, 4),
        (Type::U32, 4),
        (Type::I64, 8),
        (Type::U64, 8),
        (Type::F32, 4),
        (Type::F64, 8),
        (Type::C32, 8),
        (Type::C64, 16),
    ];

    /// Returns the type of a number.
    pub fn from_number(number: u64) -> Option<Type> {
        Type::ALL.get(usize::try_from(number).ok()?).map(|t| t.0)
    }

    /// Its bytes.
    pub fn size(self) -> usize {
        Type::ALL[self as usize].1
    }
}

/// Returns whether the operation exists for the type.
pub fn is_valid(op: AtomicOp, of: Type) -> bool {
    let bits = matches!(op, AtomicOp::Bor | AtomicOp::Band | AtomicOp::Bxor | AtomicOp::Mswap);
    let order = matches!(
        op,
        AtomicOp::Min
            | AtomicOp::Max
            | AtomicOp::CswapLe
            | AtomicOp::CswapLt
            | AtomicOp::CswapGe
            | AtomicOp::CswapGt
    );
    match of {
        Type::F32 | Type::F64 => !bits,
        Type::C32 | Type::C64 => !bits && !order,
        _ => true,
    }
}

/// New value of one element: `None` if it stays.
fn apply(op: AtomicOp, of: Type, target: &[u8], operand: &[u8], compare: &[u8]) -> Option<Vec<u8>> {
    macro_rules! whole {
        ($t:ty) => {{
            let get = |b: &[u8]| b.try_into().map(<$t>::from_ne_bytes).unwrap_or_default();
            let (t, v, c) = (get(target), get(operand), get(compare));
            let truth = |b: bool| <$t>::from(b);
            let new = match op {
                AtomicOp::Min => t.min(v),
                AtomicOp::Max => t.max(v),
                AtomicOp::Sum => t.wrapping_add(v),
                AtomicOp::Prod => t.wrapping_mul(v),
                AtomicOp::Lor => truth(t != 0 || v != 0),
                AtomicOp::Land => truth(t != 0 && v != 0),
                AtomicOp::Lxor => truth((t != 0) != (v != 0)),
                AtomicOp::Bor => t | v,
                AtomicOp::Band => t & v,
                AtomicOp::Bxor => t ^ v,
                AtomicOp::Read => return None,
                AtomicOp::Write => v,
                AtomicOp::Cswap => (c == t).then_some(v)?,
                AtomicOp::CswapNe => (c != t).then_some(v)?,
                AtomicOp::CswapLe => (c <= t).then_some(v)?,
                AtomicOp::CswapLt => (c < t).then_some(v)?,
                AtomicOp::CswapGe => (c >= t).then_some(v)?,
                AtomicOp::CswapGt => (c > t).then_some(v)?,
                AtomicOp::Mswap => (v & c) | (t & !c),
            };
            Some(new.to_ne_bytes().to_vec())
        }};
    }
    macro_rules! float {
        ($t:ty) => {{
            let get = |b: &[u8]| b.try_into().map(<$t>::from_ne_bytes).unwrap_or_default();
            let (t, v, c) = (get(target), get(operand), get(compare));
            let truth = |b: bool| if b { 1.0 } else { 0.0 };
            let new = match op {
                AtomicOp::Min => {
                    if v < t {
                        v
                    } else {
                        t
                    }
                }
                AtomicOp::Max => {
                    if v > t {
                        v
                    } else {
                        t
                    }
                }
                AtomicOp::Sum => t + v,
                AtomicOp::Prod => t * v,
                AtomicOp::Lor => truth(t != 0.0 || v != 0.0),
                AtomicOp::Land => truth(t != 0.0 && v != 0.0),
                AtomicOp::Lxor => truth((t != 0.0) != (v != 0.0)),
                AtomicOp::Write => v,
                AtomicOp::Cswap => (c == t).then_some(v)?,
                AtomicOp::CswapNe => (c != t).then_some(v)?,
                AtomicOp::CswapLe => (c <= t).then_some(v)?,
                AtomicOp::CswapLt => (c < t).then_some(v)?,
                AtomicOp::CswapGe => (c >= t).then_some(v)?,
                AtomicOp::CswapGt => (c > t).then_some(v)?,
                AtomicOp::Read | AtomicOp::Bor | AtomicOp::Band | AtomicOp::Bxor | AtomicOp::Mswap => {
                    return None;
                }
            };
            Some(new.to_ne_bytes().to_vec())
        }};
    }
    macro_rules! complex {
        ($t:ty, $n:expr) => {{
            let get = |b: &[u8]| {
                let part = |b: Option<&[u8]>| b.and_then(|b| b.try_into().ok()).map(<$t>::from_ne_bytes);
                (part(b.get(..$n)).unwrap_or_default(), part(b.get($n..)).unwrap_or_default())
            };
            let (t, v, c) = (get(target), get(operand), get(compare));
            let is = |x: ($t, $t)| x.0 != 0.0 || x.1 != 0.0;
            let truth = |b: bool| (if b { 1.0 } else { 0.0 }, 0.0);
            let new: ($t, $t) = match op {
                AtomicOp::Sum => (t.0 + v.0, t.1 + v.1),
                AtomicOp::Prod => (t.0 * v.0 - t.1 * v.1, t.0 * v.1 + t.1 * v.0),
                AtomicOp::Lor => truth(is(t) || is(v)),
                AtomicOp::Land => truth(is(t) && is(v)),
                AtomicOp::Lxor => truth(is(t) != is(v)),
                AtomicOp::Write => v,
                AtomicOp::Cswap => (c == t).then_some(v)?,
                AtomicOp::CswapNe => (c != t).then_some(v)?,
                _ => return None,
            };
            Some([new.0.to_ne_bytes(), new.1.to_ne_bytes()].concat())
        }};
    }
    match of {
        Type::I8 => whole!(i8),
        Type::U8 => whole!(u8),
        Type::I16 => whole!(i16),
        Type::U16 => whole!(u16),
        Type::I32 => whole!(i32),
        Type::U32 => whole!(u32),
        Type::I64 => whole!(i64),
        Type::U64 => whole!(u64),
        Type::F32 => float!(f32),
        Type::F64 => float!(f64),
        Type::C32 => complex!(f32, 4),
        Type::C64 => complex!(f64, 8),
    }
}

/// An atomic operation of ours.
#[derive(Clone, Debug)]
pub struct Atomic<'a> {
    /// Memory that it changes.
    pub target: RmaTarget,
    /// The operation.
    pub op: AtomicOp,
    /// Type of its operands.
    pub of: Type,
    /// Number of elements.
    pub count: usize,
    /// The operands; nothing for [`AtomicOp::Read`].
    pub operand: &'a [u8],
    /// The comparands, if it compares.
    pub compare: &'a [u8],
    /// Buffer for the old values, if they are wanted.
    pub into: Option<Buffer>,
}

/// Flag of a packed operation: the old values are wanted.
const FETCH: u64 = 1 << 16;

impl EndpointCore {
    /// Starts an atomic operation.
    ///
    /// # Errors
    ///
    /// It did not start.
    pub fn start_atomic(&mut self, atomic: &Atomic<'_>, ticket: CompletionTicket) -> Result<(), Refusal> {
        let Atomic { target, op, of, count, operand, compare, ref into } = *atomic;
        let bytes = count.saturating_mul(of.size());
        let fits = |b: &[u8], needed: bool| if needed { b.len() == bytes } else { b.is_empty() };
        if bytes > LONGEST {
            return Err(Refusal::TooLong);
        }
        if !is_valid(op, of)
            || count == 0
            || !fits(operand, op != AtomicOp::Read)
            || !fits(compare, op.compares())
            || into.as_ref().is_some_and(|b| b.len() < bytes)
        {
            return Err(Refusal::Invalid);
        }
        self.check(target.peer)?;
        self.activity.called(false);
        let operation = op as u64 | (of as u64) << 8 | if into.is_some() { FETCH } else { 0 };
        let RmaTarget { peer, address, key } = target;
        let into = into.clone().unwrap_or_default();
        let id = self.onesided.insert(OneSided { peer, ticket, into, came: 0 });
        let frame = Frame::Atomic { operation, address, key, id, count: count as u64 };
        self.post(peer, frame, &[compare, operand].concat());
        Ok(())
    }

    /// Answers a peer's atomic operation: with the old values, if they are wanted.
    pub(crate) fn answer_atomic(&mut self, peer: u32, id: u64, result: Result<Option<Vec<u8>>, i32>) {
        match result {
            Ok(Some(found)) => self.post(peer, Frame::AtomicResult { id, error: 0 }, &found),
            Ok(None) => self.post(peer, Frame::Done { id, error: 0 }, &[]),
            Err(error) => self.post(peer, Frame::Done { id, error }, &[]),
        }
    }

    /// Applies a peer's atomic operation to our memory.
    /// Returns the old values, if they are wanted, or an error.
    pub(crate) fn apply_atomic(
        &mut self,
        operation: u64,
        address: u64,
        key: u64,
        count: u64,
        operands: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, i32> {
        let (op, of) =
            match (AtomicOp::from_number(operation & 0xff), Type::from_number(operation >> 8 & 0xff)) {
                (Some(op), Some(of)) if is_valid(op, of) && count <= LONGEST as u64 => (op, of),
                _ => return Err(error::INVALID),
            };
        let size = of.size();
        let bytes = count as usize * size;
        let (compare, operand) =
            operands.split_at_checked(if op.compares() { bytes } else { 0 }).ok_or(error::INVALID)?;
        if operand.len() != if op == AtomicOp::Read { 0 } else { bytes } {
            return Err(error::INVALID);
        }
        let write = op != AtomicOp::Read;
        let part = self.regions.part(key, address, bytes as u64, write).ok_or(error::NO_KEY)?;
        let old = part.to_vec();
        let mut new = old.clone();
        for (i, element) in new.chunks_exact_mut(size).enumerate() {
            let of_element =
                |b: &[u8]| b.get(i * size..(i + 1) * size).map(<[u8]>::to_vec).unwrap_or_default();
            if let Some(result) = apply(op, of, element, &of_element(operand), &of_element(compare)) {
                element.copy_from_slice(&result);
            }
        }
        if write {
            ArrivedPayload::of(&new).copy_to(&part, 0);
        }
        self.reports.remote(if write { Class::RemoteWrite } else { Class::RemoteRead });
        self.regions.count(key, write);
        Ok((operation & FETCH != 0).then_some(old))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(op: AtomicOp, t: i32, v: i32, c: i32) -> i32 {
        let [t, v, c] = [t, v, c].map(i32::to_ne_bytes);
        let new = apply(op, Type::I32, &t, &v, &c).unwrap_or(t.to_vec());
        i32::from_ne_bytes(new.try_into().unwrap())
    }

    #[test]
    fn whole_numbers() {
        assert_eq!(one(AtomicOp::Min, 3, -4, 0), -4);
        assert_eq!(one(AtomicOp::Max, 3, -4, 0), 3);
        assert_eq!(one(AtomicOp::Sum, i32::MAX, 1, 0), i32::MIN);
        assert_eq!(one(AtomicOp::Land, 3, 4, 0), 1);
        assert_eq!(one(AtomicOp::Lxor, 3, 4, 0), 0);
        assert_eq!(one(AtomicOp::Bxor, 6, 3, 0), 5);
        assert_eq!(one(AtomicOp::Read, 6, 3, 0), 6);
        assert_eq!(one(AtomicOp::Cswap, 6, 3, 6), 3);
        assert_eq!(one(AtomicOp::Cswap, 6, 3, 7), 6);
        // The comparand is on the left: the operand is written if comparand < target.
        assert_eq!(one(AtomicOp::CswapLt, 6, 3, 5), 3);
        assert_eq!(one(AtomicOp::CswapGt, 6, 3, 5), 6);
        assert_eq!(one(AtomicOp::Mswap, 0b1100, 0b1010, 0b0110), 0b1010);
    }

    #[test]
    fn complex_numbers_multiply() {
        let pair = |a: f64, b: f64| [a.to_ne_bytes(), b.to_ne_bytes()].concat();
        let product = apply(AtomicOp::Prod, Type::C64, &pair(1.0, 2.0), &pair(3.0, -1.0), &[]).unwrap();
        assert_eq!(product, pair(5.0, 5.0));
        assert!(
            !is_valid(AtomicOp::Max, Type::C64)
                && !is_valid(AtomicOp::Bor, Type::F32)
                && is_valid(AtomicOp::Cswap, Type::C32)
        );
    }
}
