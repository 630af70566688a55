//! gemm.rs: the product of gemm.c in Rust 1.77 or newer, without any crate. Exits as gemm.c does.
//! From the folder that holds dist/:
//!
//!   rustc --edition 2021 examples/gemm.rs -L dist/lib -C link-arg=-Wl,-rpath,$PWD/dist/lib -o gemm
//!
//! Names are the header's; a test compares sizes, offsets and numbers with it.
#![allow(non_camel_case_types)]
use std::ffi::{c_char, c_int, c_void, CStr};
use std::ptr::null_mut;

pub const LIBGEMM_F32: i32 = 3;
pub const LIBGEMM_TF32: i32 = 1;
pub const LIBGEMM_OUT_OF_MEMORY: i32 = 7;

#[repr(C)]
pub struct libgemm_gemm_args {
    pub size: u64,
    pub m: i64,
    pub n: i64,
    pub k: i64,
    pub batch: i64,
    pub a: *const c_void,
    pub b: *const c_void,
    pub c: *const c_void,
    pub d: *mut c_void,
    pub bias: *const c_void,
    pub lda: i64,
    pub ldb: i64,
    pub ldc: i64,
    pub ldd: i64,
    pub batch_stride_a: i64,
    pub batch_stride_b: i64,
    pub batch_stride_c: i64,
    pub batch_stride_d: i64,
    pub batch_stride_bias: i64,
    pub alpha: f32,
    pub beta: f32,
    pub a_type: i32,
    pub d_type: i32,
    pub trans_a: i32,
    pub trans_b: i32,
    pub precision: i32,
    pub activation: i32,
    pub workspace: *mut c_void,
    pub workspace_bytes: u64,
    pub variant: *const c_char,
    pub stream: *mut c_void,
    pub batch_invariant: i32,
    pub b_type: i32,
    pub scaling: i32,
    pub reserved: i32,
    pub a_scale: *const c_void,
    pub b_scale: *const c_void,
    pub batch_stride_a_scale: i64,
    pub batch_stride_b_scale: i64,
    pub a_scale_stride_m: i64,
    pub a_scale_stride_k: i64,
    pub b_scale_stride_n: i64,
    pub b_scale_stride_k: i64,
    pub d_scale: *const c_void,
    pub d_amax: *mut f32,
}

#[link(name = "gemm")]
extern "C" {
    fn libgemm_gemm_args_init(args: *mut libgemm_gemm_args, size: u64);
    fn libgemm_gemm_workspace(args: *const libgemm_gemm_args, bytes: *mut u64) -> c_int;
    fn libgemm_gemm(args: *const libgemm_gemm_args) -> c_int;
    fn libgemm_status_name(status: i32) -> *const c_char;
    fn libgemm_last_error() -> *const c_char;
}

extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// A status other than 0, as the result that `?` hands on.
fn check(status: c_int) -> Result<(), (c_int, String)> {
    if status == 0 {
        return Ok(());
    }
    let [name, text] =
        unsafe { [libgemm_status_name(status), libgemm_last_error()].map(|s| CStr::from_ptr(s)) };
    Err((
        status,
        format!("{}: {}", name.to_string_lossy(), text.to_string_lossy()),
    ))
}

/// What is used of the CUDA driver; each function returns 0 or an error.
struct Driver {
    allocate: extern "C" fn(*mut *mut c_void, usize) -> c_int,
    copy_in: extern "C" fn(*mut c_void, *const c_void, usize) -> c_int,
    copy_out: extern "C" fn(*mut c_void, *mut c_void, usize) -> c_int,
}

impl Driver {
    /// The driver, with GPU 0's primary context current: libgemm uses that one too.
    unsafe fn open() -> Result<Driver, (c_int, String)> {
        let library = dlopen(c"libcuda.so.1".as_ptr(), 2);
        let find = |name: &CStr| dlsym(library, name.as_ptr());
        let retain: extern "C" fn(*mut *mut c_void, c_int) -> c_int =
            std::mem::transmute(find(c"cuDevicePrimaryCtxRetain"));
        let make_current: extern "C" fn(*mut c_void) -> c_int =
            std::mem::transmute(find(c"cuCtxSetCurrent"));
        let mut context = null_mut();
        need(retain(&mut context, 0))?;
        need(make_current(context))?;
        Ok(Driver {
            allocate: std::mem::transmute(find(c"cuMemAlloc_v2")),
            copy_in: std::mem::transmute(find(c"cuMemcpyHtoD_v2")),
            copy_out: std::mem::transmute(find(c"cuMemcpyDtoH_v2")),
        })
    }

    fn memory(&self, bytes: usize) -> Result<*mut c_void, (c_int, String)> {
        let mut memory = null_mut();
        need((self.allocate)(&mut memory, bytes))?;
        Ok(memory)
    }

    fn matrix(&self, host: &[f32]) -> Result<*mut c_void, (c_int, String)> {
        let memory = self.memory(std::mem::size_of_val(host))?;
        need((self.copy_in)(
            memory,
            host.as_ptr().cast(),
            std::mem::size_of_val(host),
        ))?;
        Ok(memory)
    }
}

fn need(error: c_int) -> Result<(), (c_int, String)> {
    if error == 0 {
        Ok(())
    } else {
        Err((
            LIBGEMM_OUT_OF_MEMORY,
            format!("the driver failed with {error}"),
        ))
    }
}

fn multiply(m: usize, n: usize, k: usize) -> Result<(), (c_int, String)> {
    let a: Vec<f32> = (0..m * k).map(|i| (i % 5) as f32).collect(); // small whole numbers, which tf32 holds exactly
    let b: Vec<f32> = (0..k * n).map(|i| (i % 7) as f32).collect();
    let mut d = vec![0f32; m * n];
    unsafe {
        let mut args: libgemm_gemm_args = std::mem::zeroed();
        libgemm_gemm_args_init(&mut args, std::mem::size_of_val(&args) as u64);
        (args.m, args.n, args.k) = (m as i64, n as i64, k as i64);
        (args.lda, args.ldb, args.ldd) = (k as i64, n as i64, n as i64);
        (args.a_type, args.d_type, args.precision) = (LIBGEMM_F32, LIBGEMM_F32, LIBGEMM_TF32);
        let mut bytes = 0;
        check(libgemm_gemm_workspace(&args, &mut bytes))?; // the first call that needs a driver

        let driver = Driver::open()?;
        (args.a, args.b, args.d) = (driver.matrix(&a)?, driver.matrix(&b)?, driver.matrix(&d)?);
        (args.workspace, args.workspace_bytes) = (driver.memory(bytes as usize + 16)?, bytes); // 0 bytes cannot be had
        check(libgemm_gemm(&args))?; // queued; the copy waits for it
        need((driver.copy_out)(
            d.as_mut_ptr().cast(),
            args.d,
            std::mem::size_of_val(&d[..]),
        ))?;
    }
    for (i, &found) in d.iter().enumerate() {
        let sum: f32 = (0..k).map(|j| a[i / n * k + j] * b[j * n + i % n]).sum();
        if found != sum {
            return Err((99, format!("D[{}][{}] = {found}, not {sum}", i / n, i % n)));
        }
    }
    Ok(())
}

fn main() {
    match multiply(256, 192, 128) {
        Ok(()) => println!("every number is right"),
        Err((status, words)) => {
            println!("{words}");
            std::process::exit(status);
        }
    }
}
