//! Figures as people read them.

pub use towpath_shm::shown_size as size;

/// Three significant digits, without an exponent.
pub fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m >= 99.95 || m == 0.0 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}").replace('-', "−");
    if text.trim_start_matches('−').chars().all(|c| matches!(c, '0' | '.')) { "0".into() } else { text }
}

fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    let step = steps.iter().rev().find(|(from, _)| value.abs() >= *from * 0.9995).unwrap_or(&steps[0]);
    format!("{} {}", digits(value / step.0), step.1)
}

/// A time given in nanoseconds.
pub fn nanoseconds(value: f64) -> String {
    scaled(value, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
}

/// A rate of messages per second.
pub fn message_rate(value: f64) -> String {
    scaled(value, &[(1.0, "/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")])
}

/// A bandwidth in bytes per second (decimal units, as bandwidths are).
pub fn bandwidth(value: f64) -> String {
    scaled(value, &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")])
}

/// A part of a whole.
pub fn percent(value: f64) -> String {
    format!("{} %", digits(value * 100.0))
}

/// A value in its record's unit.
pub fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "ns" => nanoseconds(value),
        "us" => nanoseconds(value * 1e3),
        "ms" => nanoseconds(value * 1e6),
        "s" => nanoseconds(value * 1e9),
        "bytes/s" => bandwidth(value),
        "messages/s" | "operations/s" | "1/s" => message_rate(value),
        "count" => format!("{value:.0}"),
        _ => digits(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_fitting_unit() {
        assert_eq!(nanoseconds(112.4), "112 ns");
        assert_eq!(nanoseconds(4387.0), "4.39 µs");
        assert_eq!(nanoseconds(999.7), "1.00 µs");
        assert_eq!(nanoseconds(-12.34), "−12.3 ns");
        assert_eq!(nanoseconds(0.0), "0 ns");
        assert_eq!(message_rate(24_600_000.0), "24.6 M/s");
        assert_eq!(bandwidth(57.3e9), "57.3 GB/s");
        assert_eq!(percent(0.0042), "0.420 %");
        assert_eq!(digits(-0.0001), "0");
        assert_eq!(digits(f64::NAN), "–");
        assert_eq!(in_unit(300.0, "count"), "300");
        assert_eq!(in_unit(52.0, "us"), "52.0 µs");
    }
}
