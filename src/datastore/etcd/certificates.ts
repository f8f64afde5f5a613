// Whether what we were given for TLS is what it should be. Libraries that are handed a wrong file say anything from "Invalid
// CA" to "was there a typo in the port"; this names the file's role and what is wrong.
import { createPrivateKey, type KeyObject, X509Certificate } from "node:crypto";
import { InvalidConfig } from "../errors.ts";
import type { TlsMaterial } from "./endpoints.ts";

/** @throws InvalidConfig for a certificate or key that cannot be read, and for a pair that does not belong together */
export function checkTls({ ca, cert, key }: TlsMaterial): void {
  if (ca !== undefined) certificate("CA certificate", ca);
  const own = cert === undefined ? undefined : certificate("client certificate", cert);
  const secret = key === undefined ? undefined : privateKey(key);
  if (own !== undefined && secret !== undefined && !own.checkPrivateKey(secret))
    throw new InvalidConfig("etcd client key: it is not the key of the client certificate");
}

function certificate(what: string, pem: Buffer): X509Certificate {
  try {
    return new X509Certificate(pem);
  } catch (error) {
    throw new InvalidConfig(`etcd ${what}: what lies between BEGIN and END is no certificate`, { cause: error });
  }
}

function privateKey(pem: Buffer): KeyObject {
  try {
    return createPrivateKey(pem);
  } catch (error) {
    throw new InvalidConfig("etcd client key: it is no private key, or one that wants a password", { cause: error });
  }
}
