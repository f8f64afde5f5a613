// Names of the objects that hold certificates. Those of Typha are the names that Calico's operator uses.

/** Holds the key that signs all certificates. Only kube-controllers reads it. */
export const AUTHORITY_SECRET = "calico-ca-private";

export const TYPHA_CERTIFICATES = {
  bundle: { configMap: "typha-ca", key: "caBundle" },
  server: { secret: "typha-certs", commonName: "typha-server" },
  client: { secret: "node-certs", commonName: "typha-client" },
} as const;

/** What CALICO_CERTIFICATES may list: programs that get certificates. */
export const CERTIFICATE_USERS = ["typha"] as const;
export type CertificateUser = (typeof CERTIFICATE_USERS)[number];
