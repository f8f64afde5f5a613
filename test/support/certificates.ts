// Creates a certificate authority and certificates for one test, with openssl.
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";

export interface Certificate {
  readonly certFile: string;
  readonly keyFile: string;
}

export class TestAuthority implements Certificate {
  readonly certFile: string;
  readonly keyFile: string;
  readonly #folder: string;
  #serial = 1;

  constructor(folder: string, name = "test CA") {
    this.#folder = folder;
    const slug = name.replaceAll(" ", "-");
    this.certFile = join(folder, `${slug}.pem`);
    this.keyFile = join(folder, `${slug}.key`);
    const { keyFile, certFile } = this;
    openssl(
      "req",
      "-x509",
      "-newkey",
      "ec",
      "-pkeyopt",
      "ec_paramgen_curve:P-256",
      "-nodes",
      "-days",
      "2",
    )("-keyout", keyFile, "-out", certFile, "-subj", `/CN=${name}`);
  }

  /** @param names subject alternative names, such as `IP:127.0.0.1`, `DNS:localhost`, `URI:spiffe://…` */
  issue(commonName: string, names: readonly string[] = ["IP:127.0.0.1", "DNS:localhost"], days = 2): Certificate {
    const base = join(this.#folder, `${commonName}-${this.#serial}`);
    const [keyFile, request, certFile, extensions] = [`${base}.key`, `${base}.csr`, `${base}.pem`, `${base}.ext`];
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")(
      "-keyout",
      keyFile,
      "-out",
      request,
      "-subj",
      `/CN=${commonName}`,
    );
    const san = names.length > 0 ? `subjectAltName=${names.join(",")}\n` : "";
    writeFileSync(extensions, `${san}extendedKeyUsage=serverAuth,clientAuth\n`);
    openssl("x509", "-req", "-in", request, "-CA", this.certFile, "-CAkey", this.keyFile)(
      "-set_serial",
      String(this.#serial++),
      "-days",
      String(days),
      "-out",
      certFile,
      "-extfile",
      extensions,
    );
    return { certFile, keyFile };
  }
}

const openssl =
  (...head: string[]) =>
  (...tail: string[]) =>
    execFileSync("openssl", [...head, ...tail], { stdio: "pipe" });
