package component

import (
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/cloudwatch"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/glue"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/kinesis"
	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/s3"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/briefing-swarm/briefing-swarm/runtime/briefing"
)

// Prefixes of the briefings bucket. What Firehose could not convert lies apart,
// so that it starts no delivery.
const (
	briefingsPrefix = "briefings/"
	errorsPrefix    = "errors/"
)

// parquetBlockBytes is the size of a row group, under the 256 MB that a
// Distributed Map reads at most.
const parquetBlockBytes = 128 << 20

// tableName is the Glue table's; its database has the component's.
const tableName = "briefings"

// gather is where rows become Parquet files.
type gather struct {
	briefings *s3.BucketV2
	database  *glue.CatalogDatabase
	table     *glue.CatalogTable
	stream    *kinesis.FirehoseDeliveryStream
}

func (s *swarm) gather() (*gather, error) {
	bucket, err := s.bucket("briefings", true, briefingsPrefix, errorsPrefix)
	if err != nil {
		return nil, err
	}
	database, err := glue.NewCatalogDatabase(s.ctx, s.child("catalog"), &glue.CatalogDatabaseArgs{
		Description: pulumi.String("briefing swarm " + s.name), Tags: s.tags(),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	table, err := s.glueTable(bucket, database)
	if err != nil {
		return nil, err
	}
	logs, err := s.logs("/aws/kinesisfirehose/", "rows")
	if err != nil {
		return nil, err
	}
	logStream, err := cloudwatch.NewLogStream(s.ctx, s.child("rows-log-stream"), &cloudwatch.LogStreamArgs{
		LogGroupName: logs.Name, Name: pulumi.String("delivery"),
	}, s.opts()...)
	if err != nil {
		return nil, err
	}
	role, permissions, err := s.role("rows", firehoseService,
		allow([]string{"s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"}, s.bucketArn(bucket)),
		allow([]string{"s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"}, below(s.bucketArn(bucket), briefingsPrefix), below(s.bucketArn(bucket), errorsPrefix)),
		allow([]string{"glue:GetTable", "glue:GetTableVersion", "glue:GetTableVersions"},
			s.arn("glue", "catalog"), s.arn("glue", "database/%s", database.Name), s.arn("glue", "table/%s/%s", database.Name, table.Name)),
		allow([]string{"logs:PutLogEvents"}, s.arn("logs", "log-group:%s:log-stream:%s", logs.Name, logStream.Name)),
	)
	if err != nil {
		return nil, err
	}
	stream, err := kinesis.NewFirehoseDeliveryStream(s.ctx, s.child("rows"), &kinesis.FirehoseDeliveryStreamArgs{
		Destination:          pulumi.String("extended_s3"),
		ServerSideEncryption: kinesis.FirehoseDeliveryStreamServerSideEncryptionArgs{Enabled: pulumi.Bool(true), KeyType: pulumi.String("AWS_OWNED_CMK")},
		ExtendedS3Configuration: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationArgs{
			BucketArn: bucket.Arn, RoleArn: role.Arn,
			Prefix:            pulumi.String(briefingsPrefix + "!{timestamp:yyyy/MM/dd}/"),
			ErrorOutputPrefix: pulumi.String(errorsPrefix + "!{firehose:error-output-type}/!{timestamp:yyyy/MM/dd}/"),
			FileExtension:     pulumi.String(".parquet"),
			BufferingSize:     pulumi.Int(s.BufferMib), BufferingInterval: pulumi.Int(s.BufferSec),
			// Parquet compresses by itself, within the file.
			CompressionFormat: pulumi.String("UNCOMPRESSED"),
			CloudwatchLoggingOptions: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationCloudwatchLoggingOptionsArgs{
				Enabled: pulumi.Bool(true), LogGroupName: logs.Name, LogStreamName: logStream.Name,
			},
			DataFormatConversionConfiguration: s.conversion(database, table, role.Arn),
		},
		Tags: s.tags(),
	}, s.opts(pulumi.DependsOn([]pulumi.Resource{permissions}))...)
	if err != nil {
		return nil, err
	}
	return &gather{briefings: bucket, database: database, table: table, stream: stream}, nil
}

// glueTable creates the table whose columns are the fields of a row.
func (s *swarm) glueTable(bucket *s3.BucketV2, database *glue.CatalogDatabase) (*glue.CatalogTable, error) {
	columns := glue.CatalogTableStorageDescriptorColumnArray{}
	for _, c := range briefing.GlueColumns() {
		columns = append(columns, glue.CatalogTableStorageDescriptorColumnArgs{Name: pulumi.String(c.Name), Type: pulumi.String(c.Type)})
	}
	return glue.NewCatalogTable(s.ctx, s.child("table"), &glue.CatalogTableArgs{
		Name: pulumi.String(tableName), DatabaseName: database.Name,
		Description: pulumi.String("one row for each user of each run"),
		TableType:   pulumi.String("EXTERNAL_TABLE"),
		Parameters:  pulumi.StringMap{"classification": pulumi.String("parquet"), "EXTERNAL": pulumi.String("TRUE")},
		StorageDescriptor: glue.CatalogTableStorageDescriptorArgs{
			Columns:      columns,
			Location:     pulumi.Sprintf("s3://%s/%s", bucket.ID(), briefingsPrefix),
			InputFormat:  pulumi.String("org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"),
			OutputFormat: pulumi.String("org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"),
			SerDeInfo: glue.CatalogTableStorageDescriptorSerDeInfoArgs{
				SerializationLibrary: pulumi.String("org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"),
			},
		},
	}, s.opts()...)
}

// conversion turns JSON rows into Parquet by the table.
func (s *swarm) conversion(database *glue.CatalogDatabase, table *glue.CatalogTable, role pulumi.StringOutput) kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationArgs {
	return kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationArgs{
		InputFormatConfiguration: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationInputFormatConfigurationArgs{
			Deserializer: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationInputFormatConfigurationDeserializerArgs{
				OpenXJsonSerDe: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationInputFormatConfigurationDeserializerOpenXJsonSerDeArgs{},
			},
		},
		OutputFormatConfiguration: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationOutputFormatConfigurationArgs{
			Serializer: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationOutputFormatConfigurationSerializerArgs{
				ParquetSerDe: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationOutputFormatConfigurationSerializerParquetSerDeArgs{
					BlockSizeBytes: pulumi.Int(parquetBlockBytes), Compression: pulumi.String("SNAPPY"),
				},
			},
		},
		SchemaConfiguration: kinesis.FirehoseDeliveryStreamExtendedS3ConfigurationDataFormatConversionConfigurationSchemaConfigurationArgs{
			DatabaseName: database.Name, TableName: table.Name, RoleArn: role, Region: pulumi.String(s.Region), VersionId: pulumi.String("LATEST"),
		},
	}
}

// put permits to write rows.
func (s *swarm) put(g *gather) statement {
	return allow([]string{"firehose:PutRecordBatch"}, s.arn("firehose", "deliverystream/%s", g.stream.Name))
}
