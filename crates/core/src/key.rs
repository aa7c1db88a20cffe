//! stub
use alloc::boxed::Box;
#[derive(Debug, Clone)]
pub struct Key(Box<str>);
#[derive(Debug, Clone)]
pub struct KeyLimits {
    pub chars_min: usize,
    pub chars_max: usize,
    pub hygiene: bool,
}
impl Default for KeyLimits {
    fn default() -> Self {
        Self {
            chars_min: 1,
            chars_max: 255,
            hygiene: false,
        }
    }
}
impl Key {
    pub fn as_str(&self) -> &str {
        &self.0
    }
    pub fn opaque(t: &str, _: &KeyLimits) -> Result<Self, ()> {
        Ok(Self(t.into()))
    }
}
