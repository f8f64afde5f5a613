// Declares the settings of Felix's connections to the datastore and to Typha.
import { hostAndPort, hostname, urls } from "./network-types.ts";
import { choice, existingFile, seconds, text } from "./scalar-types.ts";
import { localSetting } from "./setting.ts";

export const connectionSettings = {
  DatastoreType: localSetting(
    choice("kubernetes", "etcdv3", "sqlite"),
    "",
    "Datastore driver. Unset: etcd if its endpoints are configured, otherwise Kubernetes if a cluster is found, otherwise SQLite",
    { isFatal: true, rejectsNone: true },
  ),
  FelixHostname: localSetting(
    hostname,
    "",
    "Name of this node. Unset: the host name of the operating system in lower case, or `HOSTNAME`",
    { rejectsNone: true },
  ),
  EtcdAddr: localSetting(hostAndPort, "127.0.0.1:2379", "Address of etcd, used if EtcdEndpoints is unset"),
  EtcdScheme: localSetting(choice("http", "https"), "http", "Scheme for EtcdAddr"),
  EtcdEndpoints: localSetting(
    urls,
    "",
    "URLs of the etcd members, separated by commas. Takes precedence over EtcdAddr",
  ),
  EtcdKeyFile: localSetting(existingFile, "", "Private key of the client certificate for etcd"),
  EtcdCertFile: localSetting(existingFile, "", "Client certificate for etcd"),
  EtcdCaFile: localSetting(existingFile, "", "Certificate authority of etcd"),
  TyphaAddr: localSetting(hostAndPort, "", "Address of Typha. Takes precedence over TyphaK8sServiceName"),
  TyphaK8sServiceName: localSetting(text, "", "Kubernetes Service whose endpoints are Typha"),
  TyphaK8sNamespace: localSetting(text, "kube-system", "Namespace of that Service", { rejectsNone: true }),
  TyphaReadTimeout: localSetting(seconds, "30", "Felix restarts if Typha sends nothing for this long"),
  TyphaWriteTimeout: localSetting(seconds, "10", "Timeout for sending to Typha"),
  TyphaKeyFile: localSetting(existingFile, "", "Private key of the client certificate for Typha"),
  TyphaCertFile: localSetting(existingFile, "", "Client certificate for Typha"),
  TyphaCAFile: localSetting(existingFile, "", "Certificate authority of Typha"),
  TyphaCN: localSetting(text, "", "Common name that Typha's certificate must have"),
  TyphaURISAN: localSetting(text, "", "URI that Typha's certificate must have as a subject alternative name"),
};
