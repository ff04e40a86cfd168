//! Cipher of one direction of a link: AES-GCM, whose key changes after so many records.
//!
//! Both ends change it before the same record (Noise's `Rekey`); records go on being numbered. So
//! no key seals more than 2³⁶ bytes: TLS 1.3 allows some 2³⁸ for one of AES-GCM.

use snow::params::CipherChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::Cipher;

use crate::frame::TAG;

/// Number of bytes of a key.
const KEY: usize = 32;
/// Number of records that one key seals.
const RECORDS_PER_KEY: u64 = if cfg!(test) { 3 } else { 1 << 20 };

/// First key of one direction.
pub type FirstKey = [u8; KEY];

/// Cipher, and the next record's number.
pub struct RecordCipher {
    cipher: Box<dyn Cipher>,
    /// Cipher of the first key, for bytes that are no record.
    #[cfg(feature = "fabric")]
    aside: Box<dyn Cipher>,
    number: u64,
}

impl std::fmt::Debug for RecordCipher {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("RecordCipher").field("number", &self.number).finish_non_exhaustive()
    }
}

/// AES-GCM, if this build has it.
fn aes_gcm(key: &FirstKey) -> Option<Box<dyn Cipher>> {
    let mut cipher = DefaultResolver.resolve_cipher(&CipherChoice::AESGCM)?;
    cipher.set(key);
    Some(cipher)
}

impl RecordCipher {
    /// The cipher of a direction whose first key is this one.
    pub fn new(key: &FirstKey) -> Option<RecordCipher> {
        Some(RecordCipher {
            cipher: aes_gcm(key)?,
            #[cfg(feature = "fabric")]
            aside: aes_gcm(key)?,
            number: 0,
        })
    }

    /// Number of the next record.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Goes on to the next record.
    pub fn advance(&mut self) {
        self.number += 1;
        if self.number.is_multiple_of(RECORDS_PER_KEY) {
            self.cipher.rekey();
        }
    }

    /// Seals the next record into `to`, which has room for it. Returns its length.
    pub fn seal(&mut self, plain: &[u8], to: &mut [u8]) -> usize {
        let written = self.cipher.encrypt(self.number, &[], plain, to);
        self.advance();
        written
    }

    /// Opens a record into `plain`, which has room for it.
    ///
    /// Returns the number of its bytes. `None`: the peer did not seal it with this number and the
    /// present key, or the next one.
    pub fn open(&self, number: u64, record: &[u8], plain: &mut [u8]) -> Option<usize> {
        if record.len() <= TAG {
            return None;
        }
        let next;
        let cipher = match (number / RECORDS_PER_KEY).checked_sub(self.number / RECORDS_PER_KEY) {
            Some(0) => &self.cipher,
            // Records before it were lost.
            Some(1) => {
                next = self.with_next_key()?;
                &next
            }
            _ => return None,
        };
        cipher.decrypt(number, &[], record, plain).ok()
    }

    /// A cipher with the key of Noise's `Rekey`.
    fn with_next_key(&self) -> Option<Box<dyn Cipher>> {
        let mut sealed = [0; KEY + TAG];
        self.cipher.encrypt(u64::MAX, &[], &[0; KEY], &mut sealed);
        aes_gcm(sealed.first_chunk()?)
    }
}

/// Bytes that are sealed with the first key, in place of a record.
#[cfg(feature = "fabric")]
impl RecordCipher {
    /// Seals bytes that are no record into `to`, which has room for them.
    ///
    /// They take the next record's number: the first key seals nothing else with it.
    pub fn seal_aside(&mut self, plain: &[u8], to: &mut [u8]) {
        self.aside.encrypt(self.number, &[], plain, to);
        self.advance();
    }

    /// Returns whether the peer sealed these bytes in place of the record of that number.
    ///
    /// Also if records before it have not come yet.
    pub fn is_sealed_aside(&self, number: u64, sealed: &[u8], plain: &[u8]) -> bool {
        let mut opened = vec![0; sealed.len()];
        let count = self.aside.decrypt(number, &[], sealed, &mut opened);
        count.is_ok_and(|count| &opened[..count] == plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_at_both_ends_and_old_ones_open_nothing() {
        let ends = || RecordCipher::new(&[7; KEY]).unwrap();
        let (mut sender, mut receiver, first) = (ends(), ends(), ends());
        for number in 0..10 * RECORDS_PER_KEY {
            let (mut record, mut plain) = ([0; 5 + TAG], [0; 5 + TAG]);
            assert_eq!(sender.seal(b"bytes", &mut record), record.len());
            let is_first_or_next = first.open(number, &record, &mut plain).is_some();
            assert_eq!(is_first_or_next, number < 2 * RECORDS_PER_KEY, "{number}");
            assert_eq!(
                first.cipher.decrypt(number, &[], &record, &mut plain).is_ok(),
                number < RECORDS_PER_KEY
            );
            assert_eq!(receiver.open(number, &record, &mut plain), Some(5), "{number}");
            assert_eq!(&plain[..5], b"bytes");
            receiver.advance();
        }
    }
}
