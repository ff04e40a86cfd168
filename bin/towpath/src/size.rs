//! Sizes in bytes on the command line.

/// Parses a size: bytes, or a number with K, M or G (powers of 1024) and perhaps a B.
///
/// # Errors
///
/// A sentence that names the text and gives examples of sizes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size: give bytes, or a number with K, M or G (64, 4K, 1M)");
    let trimmed = text.strip_suffix(['B', 'b']).unwrap_or(text);
    let (digits, shift) = match trimmed.char_indices().last() {
        Some((at, 'K' | 'k')) => (&trimmed[..at], 10),
        Some((at, 'M' | 'm')) => (&trimmed[..at], 20),
        Some((at, 'G' | 'g')) => (&trimmed[..at], 30),
        _ => (trimmed, 0),
    };
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(wrong());
    }
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is more bytes than there can be"))
}

/// Parses a size of at least one byte.
///
/// # Errors
///
/// As [`parse_size`].
#[cfg(feature = "lab")]
pub fn parse_positive_size(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err(format!("'{text}' is no size here: give at least 1 byte (64, 4K, 1M)")),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_with_and_without_unit_is_read() {
        for (text, bytes) in [
            ("0", 0),
            ("64", 64),
            ("64B", 64),
            ("4096", 4096),
            ("3K", 3072),
            ("1KB", 1024),
            ("2m", 2 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_size_is_refused_by_name() {
        for wrong in ["", "B", "K", "KB", "-1", "+1", "4X", "1T", "1.5M", "M1", "1KK", "64 B"] {
            let error = parse_size(wrong).unwrap_err();
            assert!(error.contains("4K") && error.contains(&format!("'{wrong}'")), "{error}");
        }
        for wrong in ["99999999999G", "18446744073709551615K"] {
            assert!(parse_size(wrong).unwrap_err().contains("more bytes"), "{wrong}");
        }
        assert!(parse_size("99999999999999999999").is_err());
    }

    #[cfg(feature = "lab")]
    #[test]
    fn size_of_nothing_is_refused_where_bytes_are_moved() {
        assert_eq!(parse_positive_size("1"), Ok(1));
        assert!(parse_positive_size("0").unwrap_err().contains("4K"));
    }
}
