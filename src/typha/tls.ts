// Checks the TLS settings and the peer's certificate: it must be signed by the cluster's CA, and its common name or URI SAN
// must be the configured one.
import { readFileSync, statSync } from "node:fs";
import type { PeerCertificate, SecureContextOptions } from "node:tls";

export interface TlsFiles {
  readonly keyFile: string;
  readonly certFile: string;
  readonly caFile: string;
}
/** The peer's name. If both are set, one of them must match. */
export interface PeerName {
  readonly commonName?: string;
  readonly uriSan?: string;
}
export interface TlsSettings extends TlsFiles, PeerName {}

class TlsConfigError extends Error {
  override readonly name = "TlsConfigError";
}

/** Requires either no setting, or all three files and at least one name. */
export function checkTlsSettings(given: Partial<TlsSettings>, side: "client" | "server"): TlsSettings | undefined {
  const { keyFile = "", certFile = "", caFile = "", commonName = "", uriSan = "" } = given;
  if ([keyFile, certFile, caFile, commonName, uriSan].every((text) => text === "")) return undefined;
  if (keyFile === "" || certFile === "" || caFile === "")
    throw new TlsConfigError(
      "Typha's TLS settings are incomplete: set the key, certificate and CA file, or none of them",
    );
  if (commonName === "" && uriSan === "")
    throw new TlsConfigError(`Typha's TLS settings are incomplete: set the ${side}'s common name or URI SAN`);
  return {
    keyFile,
    certFile,
    caFile,
    ...(commonName === "" ? {} : { commonName }),
    ...(uriSan === "" ? {} : { uriSan }),
  };
}

/** Returns why a peer with a valid certificate is rejected, or undefined if its name matches. */
export function peerFault(certificate: PeerCertificate | undefined, wanted: PeerName): string | undefined {
  const commonName = certificate?.subject?.CN;
  const uris = (certificate?.subjectaltname ?? "")
    .split(", ")
    .filter((name) => name.startsWith("URI:"))
    .map((name) => name.slice(4));
  if (wanted.commonName !== undefined && commonName === wanted.commonName) return undefined;
  if (wanted.uriSan !== undefined && uris.includes(wanted.uriSan)) return undefined;
  const named = [wanted.commonName && `CN ${wanted.commonName}`, wanted.uriSan && `URI ${wanted.uriSan}`];
  return `the certificate has CN ${String(commonName ?? "-")}, URI ${uris.join(" ") || "-"}; want ${named.filter(Boolean).join(" or ")}`;
}

/** Reads the key, certificate and CA files. */
export function loadContext(
  files: TlsFiles,
  env: Readonly<Record<string, string | undefined>> = {},
): SecureContextOptions {
  const read = (file: string) => {
    try {
      return readFileSync(file);
    } catch (cause) {
      throw new TlsConfigError(`cannot read ${file}`, { cause });
    }
  };
  const suites = (env["TLS_CIPHER_SUITES"] ?? "").trim();
  return {
    key: read(files.keyFile),
    cert: read(files.certFile),
    ca: read(files.caFile),
    minVersion: env["TLS_MIN_VERSION"] === "1.3" ? "TLSv1.3" : "TLSv1.2",
    maxVersion: "TLSv1.3",
    ...(suites === "" ? {} : { ciphers: cipherList(suites) }),
  };
}

/** Returns a text that changes when one of the files is renewed. */
export const generationOf = (files: TlsFiles): string =>
  [files.keyFile, files.certFile, files.caFile]
    .map((file) => String(statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0))
    .join();

/** From IANA's names, which Go and Calico use, to OpenSSL's. */
const CIPHERS: Readonly<Record<string, string>> = {
  TLS_AES_128_GCM_SHA256: "TLS_AES_128_GCM_SHA256",
  TLS_AES_256_GCM_SHA384: "TLS_AES_256_GCM_SHA384",
  TLS_CHACHA20_POLY1305_SHA256: "TLS_CHACHA20_POLY1305_SHA256",
  TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: "ECDHE-ECDSA-AES128-GCM-SHA256",
  TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: "ECDHE-ECDSA-AES256-GCM-SHA384",
  TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-ECDSA-CHACHA20-POLY1305",
  TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: "ECDHE-RSA-AES128-GCM-SHA256",
  TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384: "ECDHE-RSA-AES256-GCM-SHA384",
  TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-RSA-CHACHA20-POLY1305",
  TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: "ECDHE-ECDSA-AES128-SHA",
  TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: "ECDHE-ECDSA-AES256-SHA",
  TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: "ECDHE-RSA-AES128-SHA",
  TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA: "ECDHE-RSA-AES256-SHA",
  TLS_RSA_WITH_AES_128_GCM_SHA256: "AES128-GCM-SHA256",
  TLS_RSA_WITH_AES_256_GCM_SHA384: "AES256-GCM-SHA384",
};

export function cipherList(names: string): string {
  const listed = names.split(",").map((name) => name.trim());
  return listed
    .map((name) => {
      const cipher = CIPHERS[name];
      if (cipher === undefined)
        throw new TlsConfigError(
          `TLS_CIPHER_SUITES: ${name} is unknown; want one of ${Object.keys(CIPHERS).join(", ")}`,
        );
      return cipher;
    })
    .join(":");
}
