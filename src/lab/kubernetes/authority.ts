// Issues certificates and kubeconfig files for the clients of the API server. Each component and node has its own client
// certificate, as RBAC and the node authorizer require.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const DAYS = "365";
const KEY = ["ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

export interface Certificate {
  readonly certFile: string;
  readonly keyFile: string;
}

export interface Subject {
  /** Name of the files. */
  readonly name: string;
  readonly commonName: string;
  readonly organization?: string;
  /** Such as `IP:10.0.0.1`, `DNS:kubernetes`. */
  readonly alternativeNames?: readonly string[];
}

export class Authority {
  readonly certFile: string;
  readonly #keyFile: string;

  /** Uses the authority in the folder, or creates one. */
  constructor(readonly folder: string) {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    this.certFile = join(folder, "ca.crt");
    this.#keyFile = join(folder, "ca.key");
    if (existsSync(this.certFile)) return;
    const name = ["-days", DAYS, "-subj", "/CN=calico-lab"];
    openssl(["req", "-x509", "-newkey", ...KEY, "-keyout", this.#keyFile, "-out", this.certFile, ...name]);
  }

  issue({ name, commonName, organization, alternativeNames = [] }: Subject): Certificate {
    const file = (extension: string) => join(this.folder, `${name}.${extension}`);
    const [certFile, keyFile, request, extensions] = [file("crt"), file("key"), file("csr"), file("ext")];
    if (existsSync(certFile)) return { certFile, keyFile };
    const subject = `${organization === undefined ? "" : `/O=${organization}`}/CN=${commonName}`;
    openssl(["req", "-newkey", ...KEY, "-keyout", keyFile, "-out", request, "-subj", subject]);
    const names = alternativeNames.length > 0 ? `subjectAltName=${alternativeNames.join(",")}\n` : "";
    writeFileSync(extensions, `${names}extendedKeyUsage=serverAuth,clientAuth\n`);
    const sign = ["x509", "-req", "-in", request, "-CA", this.certFile, "-CAkey", this.#keyFile, "-CAcreateserial"];
    openssl([...sign, "-days", DAYS, "-out", certFile, "-extfile", extensions]);
    return { certFile, keyFile };
  }

  /** Creates the key that signs service account tokens. */
  signingKey(): string {
    const file = join(this.folder, "service-accounts.key");
    if (!existsSync(file)) openssl(["genrsa", "-out", file, "2048"]);
    return file;
  }

  /** Creates a kubeconfig with embedded certificates. */
  kubeconfig(server: string, subject: Subject): string {
    const file = join(this.folder, `${subject.name}.kubeconfig`);
    const { certFile, keyFile } = this.issue(subject);
    const data = (path: string) => readFileSync(path).toString("base64");
    const cluster = { server, "certificate-authority-data": data(this.certFile) };
    const user = { "client-certificate-data": data(certFile), "client-key-data": data(keyFile) };
    const config = {
      apiVersion: "v1",
      kind: "Config",
      "current-context": "lab",
      clusters: [{ name: "lab", cluster }],
      users: [{ name: subject.name, user }],
      contexts: [{ name: "lab", context: { cluster: "lab", user: subject.name } }],
    };
    writeFileSync(file, JSON.stringify(config), { mode: 0o600 });
    return file;
  }
}

function openssl(args: readonly string[]): void {
  execFileSync("openssl", args, { stdio: "pipe" });
}
