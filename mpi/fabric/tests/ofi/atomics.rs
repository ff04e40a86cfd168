//! Atomic operations: every operation on every type, in every form that is offered,
//! against what the definitions say.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use super::support::*;
use sys::*;

const KEY: u64 = 5;

/// Form of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Update,
    Fetch,
    Compare,
}

const FORMS: [Form; 3] = [Form::Update, Form::Fetch, Form::Compare];

fn is_offered(n: &Node, form: Form, of: fi_datatype, op: fi_op) -> Option<usize> {
    let mut most = 0;
    // SAFETY: a place for the answer.
    let result = unsafe {
        match form {
            Form::Update => call!(n.ep, atomic, writevalid, of, op, &raw mut most),
            Form::Fetch => call!(n.ep, atomic, readwritevalid, of, op, &raw mut most),
            Form::Compare => call!(n.ep, atomic, compwritevalid, of, op, &raw mut most),
        }
    };
    // The domain says the same.
    let flags = match form {
        Form::Update => 0,
        Form::Fetch => 1 << 58,
        Form::Compare => 1 << 59,
    };
    // SAFETY: attributes may be zero; a place for them.
    unsafe {
        let mut attr: fi_atomic_attr = core::mem::zeroed();
        let same = call!(n.home.domain, ops, query_atomic, of, op, &raw mut attr, flags);
        assert_eq!(same, result, "{form:?}, {of}, {op}");
        if result == 0 {
            assert_eq!(attr.count, most);
        }
    }
    if result == 0 {
        Some(most)
    } else {
        assert_eq!(result, -(FI_EOPNOTSUPP as c_int));
        None
    }
}

/// Result of one element, computed from the text of fi_atomic(3) on the widest type of
/// each kind.
#[derive(Clone, Copy)]
enum Value {
    Int(i128, u32, bool),
    Float(f64, bool),
    Complex(f64, f64, bool),
}

fn value(of: fi_datatype, bytes: &[u8]) -> Value {
    let float = |b: &[u8]| f64::from(f32::from_ne_bytes(b.try_into().expect("four bytes")));
    let double = |b: &[u8]| f64::from_ne_bytes(b.try_into().expect("eight bytes"));
    match of {
        FI_FLOAT => Value::Float(float(bytes), false),
        FI_DOUBLE => Value::Float(double(bytes), true),
        FI_FLOAT_COMPLEX => Value::Complex(float(&bytes[..4]), float(&bytes[4..]), false),
        FI_DOUBLE_COMPLEX => Value::Complex(double(&bytes[..8]), double(&bytes[8..]), true),
        _ => {
            let signed = of == FI_INT8 || of == FI_INT16 || of == FI_INT32 || of == FI_INT64;
            let bits = bytes.len() as u32 * 8;
            let mut wide = [0; 16];
            wide[..bytes.len()].copy_from_slice(bytes);
            let mut number = i128::from_ne_bytes(wide);
            if signed && number >> (bits - 1) & 1 == 1 {
                number -= 1 << bits;
            }
            Value::Int(number, bits, signed)
        }
    }
}

fn bytes_of(value: Value) -> Vec<u8> {
    match value {
        Value::Int(number, bits, _) => number.to_ne_bytes()[..bits as usize / 8].to_vec(),
        Value::Float(x, true) => x.to_ne_bytes().to_vec(),
        Value::Float(x, false) => (x as f32).to_ne_bytes().to_vec(),
        Value::Complex(x, y, double) => {
            [bytes_of(Value::Float(x, double)), bytes_of(Value::Float(y, double))].concat()
        }
    }
}

fn expected(op: fi_op, of: fi_datatype, target: &[u8], operand: &[u8], compare: &[u8]) -> Vec<u8> {
    let swap_if = |yes: bool| if yes { operand.to_vec() } else { target.to_vec() };
    match (value(of, target), value(of, operand), value(of, compare)) {
        (Value::Int(t, bits, signed), Value::Int(v, ..), Value::Int(c, ..)) => {
            let result = match op {
                FI_MIN => t.min(v),
                FI_MAX => t.max(v),
                FI_SUM => t + v,
                FI_PROD => t.wrapping_mul(v),
                FI_LOR => i128::from(t != 0 || v != 0),
                FI_LAND => i128::from(t != 0 && v != 0),
                FI_LXOR => i128::from((t != 0) ^ (v != 0)),
                FI_BOR => t | v,
                FI_BAND => t & v,
                FI_BXOR => t ^ v,
                FI_ATOMIC_READ => t,
                FI_ATOMIC_WRITE => v,
                FI_CSWAP => return swap_if(c == t),
                FI_CSWAP_NE => return swap_if(c != t),
                FI_CSWAP_LE => return swap_if(c <= t),
                FI_CSWAP_LT => return swap_if(c < t),
                FI_CSWAP_GE => return swap_if(c >= t),
                FI_CSWAP_GT => return swap_if(c > t),
                _ => (v & c) | (t & !c),
            };
            bytes_of(Value::Int(result, bits, signed))
        }
        (Value::Float(t, double), Value::Float(v, _), Value::Float(c, _)) => {
            let truth = |b: bool| f64::from(u8::from(b));
            let result = match op {
                FI_MIN => t.min(v),
                FI_MAX => t.max(v),
                FI_SUM => t + v,
                FI_PROD => t * v,
                FI_LOR => truth(t != 0.0 || v != 0.0),
                FI_LAND => truth(t != 0.0 && v != 0.0),
                FI_LXOR => truth((t != 0.0) ^ (v != 0.0)),
                FI_ATOMIC_READ => t,
                FI_ATOMIC_WRITE => v,
                FI_CSWAP => return swap_if(c == t),
                FI_CSWAP_NE => return swap_if(c != t),
                FI_CSWAP_LE => return swap_if(c <= t),
                FI_CSWAP_LT => return swap_if(c < t),
                FI_CSWAP_GE => return swap_if(c >= t),
                FI_CSWAP_GT => return swap_if(c > t),
                _ => panic!("operation {op} on type {of}"),
            };
            bytes_of(Value::Float(result, double))
        }
        (Value::Complex(a, b, double), Value::Complex(x, y, _), Value::Complex(c, d, _)) => {
            let is = |a: f64, b: f64| a != 0.0 || b != 0.0;
            let truth = |b: bool| (f64::from(u8::from(b)), 0.0);
            let (re, im) = match op {
                FI_SUM => (a + x, b + y),
                FI_PROD => (a * x - b * y, a * y + b * x),
                FI_LOR => truth(is(a, b) || is(x, y)),
                FI_LAND => truth(is(a, b) && is(x, y)),
                FI_LXOR => truth(is(a, b) ^ is(x, y)),
                FI_ATOMIC_READ => (a, b),
                FI_ATOMIC_WRITE => (x, y),
                FI_CSWAP => return swap_if((a, b) == (c, d)),
                FI_CSWAP_NE => return swap_if((a, b) != (c, d)),
                _ => panic!("operation {op} on type {of}"),
            };
            bytes_of(Value::Complex(re, im, double))
        }
        _ => unreachable!("all of one type"),
    }
}

/// Elements of a type: small whole numbers as floats, all bits as integers.
fn elements(of: fi_datatype, size: usize, count: usize, seed: usize) -> Vec<u8> {
    let random = pattern(count * size + 16, seed * 7 + 1);
    (0..count)
        .flat_map(|i| {
            // Equal ones, zeros and ones occur.
            let number = f64::from(random[i] % 5) - 1.0;
            match of {
                FI_FLOAT | FI_DOUBLE => bytes_of(Value::Float(number, of == FI_DOUBLE)),
                FI_FLOAT_COMPLEX | FI_DOUBLE_COMPLEX => bytes_of(Value::Complex(
                    number,
                    f64::from(random[i + 1] % 3) - 1.0,
                    of == FI_DOUBLE_COMPLEX,
                )),
                _ if random[i] < 80 => {
                    bytes_of(Value::Int(i128::from(random[i + 1] % 2), size as u32 * 8, false))
                }
                _ => random[i..i + size].to_vec(),
            }
        })
        .collect()
}

fn sizes() -> [(fi_datatype, usize); 12] {
    [
        (FI_INT8, 1),
        (FI_UINT8, 1),
        (FI_INT16, 2),
        (FI_UINT16, 2),
        (FI_INT32, 4),
        (FI_UINT32, 4),
        (FI_INT64, 8),
        (FI_UINT64, 8),
        (FI_FLOAT, 4),
        (FI_DOUBLE, 8),
        (FI_FLOAT_COMPLEX, 8),
        (FI_DOUBLE_COMPLEX, 16),
    ]
}

/// An operation and its memory.
struct Case<'a> {
    form: Form,
    op: fi_op,
    of: fi_datatype,
    size: usize,
    operand: &'a [u8],
    compare: &'a [u8],
    found: &'a mut [u8],
}

fn ioc(bytes: &[u8], size: usize) -> [fi_ioc; 2] {
    let (a, b) = bytes.split_at(bytes.len() / size / 2 * size);
    [a, b].map(|p| fi_ioc { addr: p.as_ptr() as *mut c_void, count: p.len() / size })
}

impl Case<'_> {
    /// Calls one of the forms: 0 plain, 1 vectors, 2 a message.
    fn call(&mut self, way: usize, n: &Node, to: u64, at: u64) -> isize {
        let Case { form, op, of, size, .. } = *self;
        let count = self.operand.len().max(self.found.len()) / size;
        let (ctx, d) = (8 as *mut c_void, null_mut::<c_void>());
        let ds = null_mut::<*mut c_void>();
        let v: *const c_void = self.operand.as_ptr().cast();
        let c: *const c_void = self.compare.as_ptr().cast();
        let r: *mut c_void = self.found.as_mut_ptr().cast();
        let (vs, cs, mut rs) = (ioc(self.operand, size), ioc(self.compare, size), ioc(self.found, size));
        let remote = fi_rma_ioc { addr: at, count, key: KEY };
        let m = fi_msg_atomic {
            msg_iov: vs.as_ptr(),
            desc: null_mut(),
            iov_count: 2,
            addr: to,
            rma_iov: &raw const remote,
            rma_iov_count: 1,
            datatype: of,
            op,
            context: ctx,
            data: 0,
        };
        let (vp, cp, rp) = (vs.as_ptr(), cs.as_ptr(), rs.as_mut_ptr());
        // SAFETY: all of it stays until the report.
        unsafe {
            match (form, way) {
                (Form::Update, 0) => call!(n.ep, atomic, write, v, count, d, to, at, KEY, of, op, ctx),
                (Form::Update, 1) => call!(n.ep, atomic, writev, vp, ds, 2, to, at, KEY, of, op, ctx),
                (Form::Update, _) => call!(n.ep, atomic, writemsg, &raw const m, 0),
                (Form::Fetch, 0) => {
                    call!(n.ep, atomic, readwrite, v, count, d, r, d, to, at, KEY, of, op, ctx)
                }
                (Form::Fetch, 1) => {
                    call!(n.ep, atomic, readwritev, vp, ds, 2, rp, ds, 2, to, at, KEY, of, op, ctx)
                }
                (Form::Fetch, _) => call!(n.ep, atomic, readwritemsg, &raw const m, rp, ds, 2, 0),
                (Form::Compare, 0) => {
                    call!(n.ep, atomic, compwrite, v, count, d, c, d, r, d, to, at, KEY, of, op, ctx)
                }
                (Form::Compare, 1) => {
                    call!(n.ep, atomic, compwritev, vp, ds, 2, cp, ds, 2, rp, ds, 2, to, at, KEY, of, op, ctx)
                }
                (Form::Compare, _) => {
                    call!(n.ep, atomic, compwritemsg, &raw const m, cp, ds, 2, rp, ds, 2, 0)
                }
            }
        }
    }
}

#[test]
fn every_operation_on_every_type_does_what_its_definition_says() {
    let n = nodes(2, &Options::default());
    let window = vec![0u8; 5000];
    let mr = n[1].register(&window, FI_REMOTE_READ | FI_REMOTE_WRITE, KEY).expect("registered");
    let (mut offered, mut round) = (0, 0);
    for (of, size) in sizes() {
        for op in FI_MIN..=FI_MSWAP {
            for form in FORMS {
                let Some(most) = is_offered(&n[0], form, of, op) else { continue };
                offered += 1;
                assert!(most * size >= 4096 && most * size <= 8192, "{most} of {size} bytes");
                for (way, count) in [1, 2, 37, most].into_iter().enumerate() {
                    round += 1;
                    let at = (round % 13) * 8;
                    let memory = elements(of, size, count, round);
                    // SAFETY: the window is only used by operations, and none is under way.
                    unsafe {
                        let to = window.as_ptr().add(at).cast_mut();
                        to.copy_from_nonoverlapping(memory.as_ptr(), memory.len());
                    }
                    let operand =
                        if op == FI_ATOMIC_READ { vec![] } else { elements(of, size, count, round + 1) };
                    let compare =
                        if form == Form::Compare { elements(of, size, count, round + 2) } else { vec![] };
                    let mut found = vec![0; if form == Form::Update { 0 } else { count * size }];
                    let mut case =
                        Case { form, op, of, size, operand: &operand, compare: &compare, found: &mut found };
                    start(&n, || case.call(way % 3, &n[0], n[0].peers[1], at as u64));
                    let report = sent(&n, 0);
                    let what = format!("operation {op}, type {of}, {form:?}, {count} elements");
                    assert_eq!((report.context, report.error), (8, 0), "{what}");
                    assert_eq!(report.flags & u64::from(FI_ATOMIC), u64::from(FI_ATOMIC));
                    let element = |bytes: &[u8], i: usize| match bytes.len() {
                        0 => vec![0; size],
                        _ => bytes[i * size..(i + 1) * size].to_vec(),
                    };
                    let wanted: Vec<u8> = (0..count)
                        .flat_map(|i| {
                            expected(
                                op,
                                of,
                                &element(&memory, i),
                                &element(&operand, i),
                                &element(&compare, i),
                            )
                        })
                        .collect();
                    // SAFETY: the window is only used by operations, and none is under way.
                    let now = unsafe { std::slice::from_raw_parts(window.as_ptr().add(at), count * size) };
                    assert!(
                        now == wanted,
                        "{what}: {memory:?}, {operand:?}, {compare:?}: {now:?}, not {wanted:?}"
                    );
                    assert!(form == Form::Update || found == memory, "{what}: not what was there");
                }
            }
        }
    }
    // Integers: 12 operations fetch, 11 of them need not, 7 compare. Floats lack four of bits,
    // complex ones those of order too.
    let integers = 8 * (11 + 12 + 7);
    let floats = 2 * (8 + 9 + 6);
    let complex = 2 * (6 + 7 + 2);
    assert_eq!(offered, integers + floats + complex);
    assert_eq!(close(mr), 0);
}

#[test]
fn what_is_not_offered_is_refused() {
    let n = nodes(2, &Options::default());
    let none = -(FI_EOPNOTSUPP as isize);
    let (bytes, mut found) = ([0u8; 16], [0u8; 16]);
    for (form, op, of, size) in [
        (Form::Update, FI_BOR, FI_FLOAT, 4),
        (Form::Fetch, FI_MAX, FI_DOUBLE_COMPLEX, 16),
        (Form::Update, FI_SUM, FI_LONG_DOUBLE, 16),
        (Form::Update, FI_ATOMIC_OP_LAST, FI_INT32, 4),
        (Form::Compare, FI_CSWAP, 99, 4),
    ] {
        assert_eq!(is_offered(&n[0], form, of, op), None);
        let compare = if form == Form::Compare { &bytes[..size] } else { &[] };
        let mut case =
            Case { form, op, of, size, operand: &bytes[..size], compare, found: &mut found[..size] };
        assert_eq!(case.call(0, &n[0], n[0].peers[1], 0), none);
    }
    // Too many, and fewer results than operands.
    let many = vec![0u8; 4104];
    let mut case = Case {
        form: Form::Update,
        op: FI_SUM,
        of: FI_UINT64,
        size: 8,
        operand: &many,
        compare: &[],
        found: &mut [],
    };
    assert_eq!(case.call(0, &n[0], n[0].peers[1], 0), -(FI_EMSGSIZE as isize));
    let mut case = Case {
        form: Form::Fetch,
        op: FI_SUM,
        of: FI_UINT64,
        size: 8,
        operand: &many[..64],
        compare: &[],
        found: &mut found[..8],
    };
    assert_eq!(case.call(1, &n[0], n[0].peers[1], 0), INVALID);
    // Where there is no memory: reported, with and without a result.
    for form in [Form::Update, Form::Fetch] {
        let found = if form == Form::Fetch { &mut found[..8] } else { &mut [] };
        let operand = &many[..8];
        let mut case = Case { form, op: FI_SUM, of: FI_UINT64, size: 8, operand, compare: &[], found };
        start(&n, || case.call(0, &n[0], n[0].peers[1], 0));
        assert_eq!(sent(&n, 0).error, 266, "no such key");
    }
    nothing_more(&n);
}

#[test]
fn injected_operations_are_counted_and_not_reported() {
    let n = nodes(3, &Options::default());
    let window = [0u64; 4];
    let at = window.as_ptr().cast::<u8>();
    // SAFETY: the same bytes.
    let bytes = unsafe { std::slice::from_raw_parts(at, 32) };
    let mr = n[2].register(bytes, FI_REMOTE_READ | FI_REMOTE_WRITE, KEY).expect("registered");
    for i in 1..=500u64 {
        for node in &n[..2] {
            let bytes = i.to_ne_bytes();
            // SAFETY: the bytes are taken at once.
            start(&n, || unsafe {
                call!(
                    node.ep,
                    atomic,
                    inject,
                    bytes.as_ptr().cast(),
                    1,
                    node.peers[2],
                    8,
                    KEY,
                    FI_UINT64,
                    FI_SUM
                )
            });
        }
    }
    until(&n, || (n[2].count(FI_REMOTE_WRITE) == 1000).then_some(()));
    until(&n, || (n[0].count(FI_WRITE) + n[1].count(FI_WRITE) == 1000).then_some(()));
    // SAFETY: nothing is under way.
    assert_eq!(unsafe { window.as_ptr().add(1).read_volatile() }, 500 * 501);
    nothing_more(&n);
    assert_eq!(close(mr), 0);
}
