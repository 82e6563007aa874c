package mototest

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dynamotypes "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/firehose"
	firehosetypes "github.com/aws/aws-sdk-go-v2/service/firehose/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/briefing-swarm/briefing-swarm/runtime/awsclient"
)

// Env is the environment of a process whose AWS is the endpoint.
func Env(endpoint string) map[string]string {
	return map[string]string{
		"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": Region, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	}
}

// Clients returns the product's own clients, which reach the endpoint by the
// environment, as they would inside a function.
func Clients(t testing.TB, endpoint string) *awsclient.Clients {
	t.Helper()
	for name, value := range Env(endpoint) {
		t.Setenv(name, value)
	}
	clients, err := awsclient.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// Bucket makes a bucket.
func Bucket(t testing.TB, c *awsclient.Clients, name string) {
	t.Helper()
	if _, err := c.S3.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &name}); err != nil {
		t.Fatal(err)
	}
}

// Put writes an object.
func Put(t testing.TB, c *awsclient.Clients, bucket, key string, body []byte) {
	t.Helper()
	if _, err := c.S3.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &key, Body: bytes.NewReader(body)}); err != nil {
		t.Fatal(err)
	}
}

// Get reads an object.
func Get(t testing.TB, c *awsclient.Clients, bucket, key string) []byte {
	t.Helper()
	out, err := c.S3.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	defer out.Body.Close() // opened for reading: nothing to lose
	body, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// Keys lists the objects of a prefix.
func Keys(t testing.TB, c *awsclient.Clients, bucket, prefix string) []string {
	t.Helper()
	var keys []string
	pages := s3.NewListObjectsV2Paginator(c.S3, &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(context.WithoutCancel(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Contents {
			keys = append(keys, aws.ToString(o.Key))
		}
	}
	return keys
}

// Stream makes a delivery stream that writes to a bucket, under a prefix.
func Stream(t testing.TB, c *awsclient.Clients, name, bucket, prefix string) {
	t.Helper()
	_, err := c.Firehose.CreateDeliveryStream(t.Context(), &firehose.CreateDeliveryStreamInput{
		DeliveryStreamName: &name, DeliveryStreamType: firehosetypes.DeliveryStreamTypeDirectPut,
		ExtendedS3DestinationConfiguration: &firehosetypes.ExtendedS3DestinationConfiguration{
			BucketARN: aws.String("arn:aws:s3:::" + bucket), RoleARN: aws.String("arn:aws:iam::123456789012:role/stream"), Prefix: &prefix,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Table makes a table with one string key.
func Table(t testing.TB, c *awsclient.Clients, name, key string) {
	t.Helper()
	_, err := c.DynamoDB.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: dynamotypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamotypes.AttributeDefinition{{AttributeName: &key, AttributeType: dynamotypes.ScalarAttributeTypeS}},
		KeySchema:            []dynamotypes.KeySchemaElement{{AttributeName: &key, KeyType: dynamotypes.KeyTypeHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// LedgerTable makes a table with the keys of the sent-ledger.
func LedgerTable(t testing.TB, c *awsclient.Clients, name string) {
	t.Helper()
	key := func(name string, kind dynamotypes.KeyType) dynamotypes.KeySchemaElement {
		return dynamotypes.KeySchemaElement{AttributeName: &name, KeyType: kind}
	}
	attribute := func(name string) dynamotypes.AttributeDefinition {
		return dynamotypes.AttributeDefinition{AttributeName: &name, AttributeType: dynamotypes.ScalarAttributeTypeS}
	}
	_, err := c.DynamoDB.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: &name, BillingMode: dynamotypes.BillingModePayPerRequest,
		AttributeDefinitions: []dynamotypes.AttributeDefinition{attribute("run_id"), attribute("user_id")},
		KeySchema:            []dynamotypes.KeySchemaElement{key("run_id", dynamotypes.KeyTypeHash), key("user_id", dynamotypes.KeyTypeRange)},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Queue makes a queue and returns its URL.
func Queue(t testing.TB, c *awsclient.Clients, name string) string {
	t.Helper()
	out, err := c.SQS.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: &name})
	if err != nil {
		t.Fatal(err)
	}
	return aws.ToString(out.QueueUrl)
}
