//! gRPC server reflection, so that tools such as grpcurl need no proto file: what `gateway/proto` says, compiled.
//!
//! `descriptors.bin` is made from it by this file's test, under `make bless`: the build needs no compiler of protos.

use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use tonic_reflection::server::v1alpha::{
    ServerReflection as OldReflection, ServerReflectionServer as OldReflectionServer,
};
use tonic_reflection::server::{Builder, Error};

const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");

fn builder() -> Builder<'static> {
    Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
}

/// The service that is asked today.
pub(super) fn service() -> Result<ServerReflectionServer<impl ServerReflection>, Error> {
    builder().build_v1()
}

/// The same under the name that older tools ask for.
pub(super) fn old_service() -> Result<OldReflectionServer<impl OldReflection>, Error> {
    builder().build_v1alpha()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use relevo_shared::platform::config::env_var;

    use super::*;

    #[test]
    fn the_descriptors_are_those_of_the_proto_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut compiler = protox::Compiler::new([root.join("proto")]).unwrap();
        let compiled = compiler
            .include_imports(true)
            .open_file("a2a.proto")
            .unwrap()
            .encode_file_descriptor_set();
        if env_var("BLESS").is_some() {
            std::fs::write(root.join("src/transport/grpc/descriptors.bin"), &compiled).unwrap();
        } else {
            assert!(
                compiled == DESCRIPTORS,
                "descriptors.bin is out of date: run `make bless`"
            );
        }
    }

    #[test]
    fn they_can_be_served() {
        assert!(service().is_ok() && old_service().is_ok());
    }
}
