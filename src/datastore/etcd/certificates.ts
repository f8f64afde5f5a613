// Checks the configured TLS certificates and key. TLS libraries report a wrong file as anything from "Invalid CA" to "was
// there a typo in the port"; the errors here name the role of the file and the problem.
import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { InvalidConfig } from "../errors.ts";
import type { TlsMaterial } from "./endpoints.ts";

/** @throws InvalidConfig for a certificate or key that cannot be parsed, and for a key that does not match its certificate */
export function checkTls({ ca, cert, key }: TlsMaterial): void {
  if (ca !== undefined) certificate("CA certificate", ca);
  const clientCertificate = cert === undefined ? undefined : certificate("client certificate", cert);
  const clientKey = key === undefined ? undefined : privateKey(key);
  if (clientCertificate !== undefined && clientKey !== undefined && !clientCertificate.checkPrivateKey(clientKey))
    throw new InvalidConfig("etcd client key: does not match the client certificate");
}

function certificate(what: string, pem: Buffer): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch (error) {
    throw new InvalidConfig(`etcd ${what}: the text between BEGIN and END is not a certificate`, { cause: error });
  }
}

function privateKey(pem: Buffer): KeyObject {
  try {
    return createPrivateKey(pem);
  } catch (error) {
    throw new InvalidConfig("etcd client key: not a private key, or encrypted with a password", { cause: error });
  }
}
