package main

import (
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strings"
)

func init() {
	maps.Copy(rules, map[string]func(*inputs){
		"aws:s3/bucketV2:BucketV2":                                                                   s3Bucket,
		"aws:s3/bucket:Bucket":                                                                       s3Bucket,
		"aws:s3/bucketVersioningV2:BucketVersioningV2":                                               s3Versioning,
		"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock":                                     s3Part,
		"aws:s3/bucketNotification:BucketNotification":                                               s3Part,
		"aws:s3/bucketLoggingV2:BucketLoggingV2":                                                     s3Part,
		"aws:s3/bucketOwnershipControls:BucketOwnershipControls":                                     s3Ownership,
		"aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2": s3Encryption,
		"aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2":                       s3Lifecycle,
		"aws:s3/bucketPolicy:BucketPolicy":                                                           s3Policy,
		"aws:s3/bucketObject:BucketObject":                                                           s3Object,
		"aws:s3/bucketObjectv2:BucketObjectv2":                                                       s3Object,
		"aws:dynamodb/table:Table":                                                                   dynamoTable,
		"aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream":                                  firehose,
		"aws:glue/catalogDatabase:CatalogDatabase":                                                   glueDatabase,
		"aws:glue/catalogTable:CatalogTable":                                                         glueTable,
		"aws:datasync/s3Location:S3Location":                                                         dataSyncS3,
		"aws:datasync/efsLocation:EfsLocation":                                                       dataSyncEFS,
		"aws:datasync/task:Task":                                                                     dataSyncTask,
		"aws:efs/fileSystem:FileSystem":                                                              efsFileSystem,
		"aws:efs/accessPoint:AccessPoint":                                                            efsAccessPoint,
		"aws:efs/mountTarget:MountTarget":                                                            efsMountTarget,
		"aws:efs/backupPolicy:BackupPolicy":                                                          efsBackup,
		"aws:efs/fileSystemPolicy:FileSystemPolicy":                                                  efsPolicy,
	})
}

const bucketRef = `[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]`

func s3Bucket(in *inputs) {
	in.match("bucket", bucketRef, "3 to 63 lower-case letters, digits, . and -, with a letter or digit at both ends")
	if name, ok := in.text("bucket"); ok {
		switch {
		case net.ParseIP(name) != nil:
			in.fault("bucket", "%q is an IP address", name)
		case strings.Contains(name, "..") || strings.Contains(name, ".-") || strings.Contains(name, "-."):
			in.fault("bucket", "%q has two of . and - together", name)
		case strings.HasPrefix(name, "xn--") || strings.HasPrefix(name, "sthree-") || strings.HasPrefix(name, "amzn-s3-demo-") ||
			strings.HasSuffix(name, "-s3alias") || strings.HasSuffix(name, "--ol-s3") || strings.HasSuffix(name, ".mrap"):
			in.fault("bucket", "%q begins or ends as S3 keeps to itself", name)
		}
	}
	in.match("bucketPrefix", `[a-z0-9][a-z0-9.-]{0,36}`, "at most 37 lower-case letters, digits, . and -")
	in.forbid("with bucket", map[bool][]string{true: {"bucketPrefix"}}[in.has("bucket") && in.has("bucketPrefix")]...)
	in.oneOf("acl", "private", "log-delivery-write")
}

func s3Part(in *inputs) { in.match("bucket", bucketRef, "a bucket") }

func s3Versioning(in *inputs) {
	s3Part(in)
	in.oneOf("versioningConfiguration.status", "Enabled", "Suspended", "Disabled")
}

func s3Ownership(in *inputs) {
	s3Part(in)
	in.oneOf("rule.objectOwnership", "BucketOwnerEnforced", "BucketOwnerPreferred", "ObjectWriter")
}

func s3Encryption(in *inputs) {
	s3Part(in)
	in.count("rules", 1, 1)
	for _, rule := range in.each("rules") {
		rule.oneOf("applyServerSideEncryptionByDefault.sseAlgorithm", "AES256", "aws:kms", "aws:kms:dsse")
	}
}

func s3Policy(in *inputs) {
	s3Part(in)
	in.policy("policy", resourcePolicy)
}

func s3Object(in *inputs) {
	in.length("key", 1, 1024)
	given := 0
	for _, source := range []string{"source", "content", "contentBase64"} {
		if in.has(source) {
			given++
		}
	}
	if given > 1 {
		in.fault("source", "is given beside another content")
	}
}

func s3Lifecycle(in *inputs) {
	s3Part(in)
	in.count("rules", 1, 1000)
	ids := map[string]bool{}
	for _, rule := range in.each("rules") {
		rule.require("id", "status")
		rule.length("id", 1, 255)
		if id, ok := rule.text("id"); ok && ids[id] {
			rule.fault("id", "%q comes twice", id)
		} else {
			ids[id] = true
		}
		rule.oneOf("status", "Enabled", "Disabled")
		rule.between("expiration.days", 1, 1e6)
		rule.between("noncurrentVersionExpiration.noncurrentDays", 1, 1e6)
		rule.between("abortIncompleteMultipartUpload.daysAfterInitiation", 1, 1e6)
		if !rule.has("expiration") && !rule.has("noncurrentVersionExpiration") && !rule.has("abortIncompleteMultipartUpload") &&
			!rule.has("transitions") && !rule.has("noncurrentVersionTransitions") {
			rule.fault("", "does nothing")
		}
		for _, transition := range rule.each("transitions") {
			transition.oneOf("storageClass", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER", "GLACIER_IR", "DEEP_ARCHIVE")
		}
	}
}

func dynamoTable(in *inputs) {
	in.match("name", `[a-zA-Z0-9_.-]{3,255}`, "3 to 255 letters, digits and _.-")
	in.oneOf("billingMode", "PAY_PER_REQUEST", "PROVISIONED")
	mode, _ := in.text("billingMode")
	if mode == "PAY_PER_REQUEST" {
		in.forbid("with PAY_PER_REQUEST", "readCapacity", "writeCapacity")
	} else if in.known("billingMode") {
		in.require("readCapacity", "writeCapacity")
	}
	in.require("hashKey", "attributes")
	keys := map[string]bool{}
	addKeys := func(at *inputs) {
		for _, property := range []string{"hashKey", "rangeKey"} {
			if key, ok := at.text(property); ok {
				keys[key] = true
			}
		}
	}
	addKeys(in)
	for _, index := range in.each("globalSecondaryIndexes") {
		addKeys(index)
		index.oneOf("projectionType", "ALL", "KEYS_ONLY", "INCLUDE")
	}
	for _, index := range in.each("localSecondaryIndexes") {
		addKeys(index)
		index.oneOf("projectionType", "ALL", "KEYS_ONLY", "INCLUDE")
	}
	defined := map[string]bool{}
	for _, attribute := range in.each("attributes") {
		attribute.oneOf("type", "S", "N", "B")
		if name, ok := attribute.text("name"); ok {
			if !keys[name] {
				attribute.fault("name", "%q is defined, but no key uses it", name)
			}
			defined[name] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if !defined[key] {
			in.fault("attributes", "lack the key %q", key)
		}
	}
	if hash, ok := in.text("hashKey"); ok {
		if sort, _ := in.text("rangeKey"); sort == hash {
			in.fault("rangeKey", "is the hashKey")
		}
	}
	if in.truth("ttl.enabled") {
		in.require("ttl.attributeName")
		in.length("ttl.attributeName", 1, 255)
	}
	in.oneOf("streamViewType", "KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES")
	in.oneOf("tableClass", "STANDARD", "STANDARD_INFREQUENT_ACCESS")
}

func firehose(in *inputs) {
	in.match("name", `[a-zA-Z0-9_.-]{1,64}`, "1 to 64 letters, digits and _.-")
	in.oneOf("destination", "extended_s3", "redshift", "elasticsearch", "opensearch", "opensearchserverless", "splunk", "http_endpoint", "snowflake", "iceberg")
	if destination, _ := in.text("destination"); destination != "extended_s3" {
		return
	}
	in.require("extendedS3Configuration")
	for _, s3 := range in.each("extendedS3Configuration") {
		s3.require("roleArn", "bucketArn")
		s3.arn("roleArn", "iam")
		s3.arn("bucketArn", "s3")
		s3.oneOf("compressionFormat", "UNCOMPRESSED", "GZIP", "ZIP", "Snappy", "HADOOP_SNAPPY")
		s3.oneOf("s3BackupMode", "Disabled", "Enabled")
		s3.between("bufferingInterval", 0, 900)
		conversion := s3.has("dataFormatConversionConfiguration") && !isFalse(s3, "dataFormatConversionConfiguration.enabled")
		if conversion || s3.truth("dynamicPartitioningConfiguration.enabled") {
			s3.between("bufferingSize", 64, 128)
			s3.require("bufferingSize")
		} else {
			s3.between("bufferingSize", 1, 128)
		}
		prefix, _ := s3.text("prefix")
		errors, _ := s3.text("errorOutputPrefix")
		if strings.Contains(prefix, "!{firehose:error-output-type}") {
			s3.fault("prefix", "has !{firehose:error-output-type}, which only the error prefix has")
		}
		if strings.Contains(prefix, "!{") && !s3.has("errorOutputPrefix") {
			s3.fault("errorOutputPrefix", "is missing, but prefix has expressions")
		}
		if strings.Contains(errors, "!{") && !strings.Contains(errors, "!{firehose:error-output-type}") {
			s3.fault("errorOutputPrefix", "%q has expressions, but not !{firehose:error-output-type}", errors)
		}
		for _, path := range []string{"prefix", "errorOutputPrefix"} {
			s3.length(path, 0, 1024)
			if text, ok := s3.text(path); ok {
				if expression := compiled(`!\{[^}]*\}?`).FindString(strings.Join(compiled(`!\{(?:timestamp:[^}]+|firehose:(?:error-output-type|random-string)|partitionKeyFrom(?:Query|Lambda):[^}]+)\}`).Split(text, -1), "")); expression != "" {
					s3.fault(path, "has the unknown expression %s", expression)
				}
			}
		}
		if s3.truth("cloudwatchLoggingOptions.enabled") {
			s3.require("cloudwatchLoggingOptions.logGroupName", "cloudwatchLoggingOptions.logStreamName")
		}
		if !conversion {
			continue
		}
		if format, ok := s3.text("compressionFormat"); ok && format != "UNCOMPRESSED" {
			s3.fault("compressionFormat", "%s is not allowed with format conversion, want UNCOMPRESSED: Parquet compresses itself", format)
		}
		for _, c := range s3.each("dataFormatConversionConfiguration") {
			c.require("inputFormatConfiguration", "outputFormatConfiguration", "schemaConfiguration")
			c.one("inputFormatConfiguration.deserializer.openXJsonSerDe", "inputFormatConfiguration.deserializer.hiveJsonSerDe")
			c.one("outputFormatConfiguration.serializer.parquetSerDe", "outputFormatConfiguration.serializer.orcSerDe")
			parquet := "outputFormatConfiguration.serializer.parquetSerDe."
			c.oneOf(parquet+"compression", "UNCOMPRESSED", "GZIP", "SNAPPY")
			c.oneOf(parquet+"writerVersion", "V1", "V2")
			c.between(parquet+"blockSizeBytes", 64<<20, 1<<40)
			c.between(parquet+"pageSizeBytes", 64<<10, 1<<40)
			c.require("schemaConfiguration.databaseName", "schemaConfiguration.tableName", "schemaConfiguration.roleArn")
			c.arn("schemaConfiguration.roleArn", "iam")
		}
	}
}

func isFalse(in *inputs, path string) bool {
	value, ok := in.get(path)
	return ok && value == false
}

const glueName = `[a-z0-9_][a-z0-9_-]*`

func glueDatabase(in *inputs) {
	in.match("name", glueName, "lower-case letters, digits, _ and -")
	in.length("name", 1, 255)
}

func glueTable(in *inputs) {
	in.match("name", glueName, "lower-case letters, digits, _ and -")
	in.length("name", 1, 255)
	in.oneOf("tableType", "EXTERNAL_TABLE", "VIRTUAL_VIEW", "GOVERNED")
	columns := map[string]bool{}
	for _, path := range []string{"storageDescriptor.columns", "partitionKeys"} {
		for _, column := range in.each(path) {
			column.require("name")
			column.match("name", `[^A-Z\s]{1,255}`, "a lower-case name")
			if name, ok := column.text("name"); ok {
				if columns[name] {
					column.fault("name", "%q comes twice", name)
				}
				columns[name] = true
			}
			if typ, ok := column.text("type"); ok {
				if rest, ok := glueType(typ); !ok || rest != "" {
					column.fault("type", "%q is no type of Glue", typ)
				}
			}
			column.length("comment", 0, 255)
		}
	}
	in.match("storageDescriptor.location", `s3://[a-z0-9.-]+(?:/.*)?`, "an address such as s3://bucket/prefix/")
	in.match("storageDescriptor.inputFormat", `org\.apache\.hadoop\.[\w.]+`, "a class of Hadoop")
	in.match("storageDescriptor.outputFormat", `org\.apache\.hadoop\.[\w.]+`, "a class of Hadoop")
	in.match("storageDescriptor.serDeInfo.serializationLibrary", `(?:org|com)\.[\w.]+`, "a class")
}

// glueType reads one type of Hive off the front of s.
func glueType(s string) (rest string, ok bool) {
	for _, complex := range []string{"array<", "map<", "struct<"} {
		inner, found := strings.CutPrefix(s, complex)
		if !found {
			continue
		}
		for first := true; ; first = false {
			if complex == "struct<" {
				_, after, found := strings.Cut(inner, ":")
				if !found || compiled(`^\w+:`).FindString(inner) == "" {
					return s, false
				}
				inner = after
			} else if complex == "map<" && first {
				var ok bool
				if inner, ok = glueType(inner); !ok || !strings.HasPrefix(inner, ",") {
					return s, false
				}
				inner = inner[1:]
			}
			if inner, ok = glueType(inner); !ok {
				return s, false
			}
			if end, found := strings.CutPrefix(inner, ">"); found {
				return end, true
			}
			if inner, found = strings.CutPrefix(inner, ","); !found || complex != "struct<" {
				return s, false
			}
		}
	}
	match := compiled(`^(?:boolean|tinyint|smallint|int|integer|bigint|float|double|string|date|timestamp|binary|decimal(?:\(\d{1,2},\d{1,2}\))?|(?:var)?char\(\d+\))`).FindString(s)
	return s[len(match):], match != ""
}

func efsFileSystem(in *inputs) {
	in.length("creationToken", 1, 64)
	in.oneOf("performanceMode", "generalPurpose", "maxIO")
	in.oneOf("throughputMode", "bursting", "provisioned", "elastic")
	mode, _ := in.text("throughputMode")
	if mode == "provisioned" {
		in.require("provisionedThroughputInMibps")
		in.between("provisionedThroughputInMibps", 1, 10240)
	} else if in.known("throughputMode") {
		in.forbid("unless throughputMode is provisioned", "provisionedThroughputInMibps")
	}
	if performance, _ := in.text("performanceMode"); performance == "maxIO" && mode == "elastic" {
		in.fault("performanceMode", "maxIO is not allowed with elastic throughput")
	}
	for _, policy := range in.each("lifecyclePolicies") {
		policy.match("transitionToIa", `AFTER_(?:1_DAY|(?:7|14|30|60|90|180|270|365)_DAYS)`, "such as AFTER_30_DAYS")
		policy.oneOf("transitionToPrimaryStorageClass", "AFTER_1_ACCESS")
	}
	in.arn("kmsKeyId", "kms")
}

func efsAccessPoint(in *inputs) {
	in.match("fileSystemId", `fs-[0-9a-f]+`, "a file system")
	in.between("posixUser.uid", 0, 1<<32-1)
	in.between("posixUser.gid", 0, 1<<32-1)
	in.match("rootDirectory.path", `/|(?:/[^/\s]+){1,4}`, "a path of at most four folders")
	in.match("rootDirectory.creationInfo.permissions", `[0-7]{3,4}`, "an octal mode")
	if in.has("rootDirectory.creationInfo") {
		in.require("rootDirectory.creationInfo.ownerUid", "rootDirectory.creationInfo.ownerGid", "rootDirectory.creationInfo.permissions")
	}
}

func efsMountTarget(in *inputs) {
	in.match("fileSystemId", `fs-[0-9a-f]+`, "a file system")
	in.match("subnetId", `subnet-[0-9a-f]+`, "a subnet")
	in.count("securityGroups", 1, 5)
}

func efsBackup(in *inputs) { in.oneOf("backupPolicy.status", "ENABLED", "DISABLED") }

func efsPolicy(in *inputs) { in.policy("policy", resourcePolicy) }

func dataSyncS3(in *inputs) {
	in.arn("s3BucketArn", "s3")
	in.arn("s3Config.bucketAccessRoleArn", "iam")
	in.match("subdirectory", `[a-zA-Z0-9_\-+./()$ ]+`, "a folder")
}

func dataSyncEFS(in *inputs) {
	in.arn("efsFileSystemArn", "elasticfilesystem")
	in.arn("accessPointArn", "elasticfilesystem")
	in.arn("ec2Config.subnetArn", "ec2")
	in.arns("ec2Config.securityGroupArns", "ec2")
	in.count("ec2Config.securityGroupArns", 1, 5)
	in.oneOf("inTransitEncryption", "NONE", "TLS1_2")
	if encryption, _ := in.text("inTransitEncryption"); in.has("accessPointArn") && in.known("inTransitEncryption") && encryption != "TLS1_2" {
		in.fault("inTransitEncryption", "must be TLS1_2 with an access point")
	}
}

func dataSyncTask(in *inputs) {
	in.arn("sourceLocationArn", "datasync")
	in.arn("destinationLocationArn", "datasync")
	in.length("name", 1, 256)
	in.oneOf("options.verifyMode", "POINT_IN_TIME_CONSISTENT", "ONLY_FILES_TRANSFERRED", "NONE")
	in.oneOf("options.overwriteMode", "ALWAYS", "NEVER")
	in.oneOf("options.transferMode", "CHANGED", "ALL")
	in.oneOf("options.posixPermissions", "NONE", "PRESERVE")
	in.oneOf("options.uid", "NONE", "INT_VALUE", "NAME", "BOTH")
	in.oneOf("options.gid", "NONE", "INT_VALUE", "NAME", "BOTH")
	in.oneOf("options.logLevel", "OFF", "BASIC", "TRANSFER")
}

// numberOf reads a number that JSON documents of SQS also write as text.
func numberOf(value any) (float64, bool) {
	switch value := value.(type) {
	case float64:
		return value, true
	case string:
		var n json.Number = json.Number(value)
		f, err := n.Float64()
		return f, err == nil
	}
	return 0, false
}
