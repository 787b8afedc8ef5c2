//! Randomness that is a pure function of a seed and a position (`random.cu`).

/// The finalizer of SplitMix64, a bijection of 64 bits (Steele, Lea and Flood, *Fast splittable pseudorandom number generators*, 2014).
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Word `k` of SplitMix64's stream from `key`.
pub const fn stream_word(key: u64, k: u64) -> u64 {
    mix(key.wrapping_add(k.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// Key of the poison of `seed`. Mixed once more, so that seeds which lie one step of the stream apart do not give shifted patterns.
pub const fn poison_key(seed: u64) -> u64 {
    mix(seed ^ 0x706f_6973_6f6e_6564)
}

/// Philox4x32-10 of the counter `(position, stream, 0)` under the key `seed` (Salmon, Moraes, Dror and Shaw, *Parallel random numbers: as
/// easy as 1, 2, 3*, 2011): 128 bits for each element, passing BigCrush, at the price of twenty multiplications.
pub const fn philox(seed: u64, position: u64, stream: u32) -> [u32; 4] {
    rounds([position as u32, (position >> 32) as u32, stream, 0], [seed as u32, (seed >> 32) as u32])
}

const fn rounds(mut x: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut round = 0;
    while round < 10 {
        let (p, q) = (0xd251_1f53 * x[0] as u64, 0xcd9e_8d57 * x[2] as u64);
        x = [(q >> 32) as u32 ^ x[1] ^ key[0], q as u32, (p >> 32) as u32 ^ x[3] ^ key[1], p as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
        round += 1;
    }
    x
}

/// Two halves of a word.
pub const fn joined(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// `0..n` from 32 random bits (Lemire 2019, without the rejection: the bias is below `n` in 2^32).
pub const fn below(random: u32, n: u32) -> u32 {
    ((random as u64 * n as u64) >> 32) as u32
}

/// High half of a product of 64 bits: `0..n` from 64 random bits.
pub const fn high_product(random: u64, n: u64) -> u64 {
    ((random as u128 * n as u128) >> 64) as u64
}

/// A multiple of 2^-53 in `[0, 1)`.
pub fn unit(random: u64) -> f64 {
    (random >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// Sum of four uniforms of 16 bits each, scaled to unit variance (Irwin-Hall): near enough to normal, and exact but for one rounding.
pub fn normal(random: u64) -> f64 {
    /// `sqrt(3) / 65535`.
    const SCALE: f64 = 2.642_940_119_888_421_8e-5;
    let sum: i32 = (0..4).map(|i| ((random >> (16 * i)) & 0xffff) as i32).sum();
    f64::from(sum - 131_070) * SCALE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers from the authors' Random123 distribution, `kat_vectors`.
    #[test]
    fn philox_is_philox() {
        assert_eq!(rounds([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(rounds([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        let pi = rounds([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
        assert_eq!(pi, [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
    }

    /// First outputs of the authors' SplitMix64 from the seed 1234567.
    #[test]
    fn splitmix_is_splitmix() {
        let words: Vec<u64> = (0..3).map(|k| stream_word(1_234_567, k)).collect();
        assert_eq!(words, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn normal_numbers_have_unit_variance() {
        let values: Vec<f64> = (0..100_000).map(|i| normal(stream_word(9, i))).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }
}
