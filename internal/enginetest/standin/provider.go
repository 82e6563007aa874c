package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// account owns everything that the stand-in makes.
const account = "123456789012"

// standin answers the engine for one provider.
type standin struct {
	pulumirpc.UnimplementedResourceProviderServer

	pkg string
	dir string // STANDIN_DIR, may be empty

	mu          sync.Mutex
	region      string
	defaultTags map[string]any
}

var marshalling = plugin.MarshalOptions{KeepUnknowns: true, KeepSecrets: true, KeepResources: true, SkipNulls: true}

func (s *standin) Handshake(context.Context, *pulumirpc.ProviderHandshakeRequest) (*pulumirpc.ProviderHandshakeResponse, error) {
	return &pulumirpc.ProviderHandshakeResponse{AcceptSecrets: true, AcceptResources: true}, nil
}

func (s *standin) GetPluginInfo(context.Context, *emptypb.Empty) (*pulumirpc.PluginInfo, error) {
	return &pulumirpc.PluginInfo{Version: versions[s.pkg]}, nil
}

func (s *standin) GetSchema(context.Context, *pulumirpc.GetSchemaRequest) (*pulumirpc.GetSchemaResponse, error) {
	doc, err := json.Marshal(map[string]any{"name": s.pkg, "version": versions[s.pkg]})
	return &pulumirpc.GetSchemaResponse{Schema: string(doc)}, err
}

func (s *standin) CheckConfig(_ context.Context, r *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	return &pulumirpc.CheckResponse{Inputs: r.GetNews()}, nil
}

// DiffConfig asks for new resources where the region changes, as AWS's does.
func (s *standin) DiffConfig(_ context.Context, r *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	if before, after := r.GetOldInputs().GetFields()["region"].GetStringValue(), r.GetNews().GetFields()["region"].GetStringValue(); before != after {
		return &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_SOME, Diffs: []string{"region"}, Replaces: []string{"region"}}, nil
	}
	return &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_NONE}, nil
}

func (s *standin) Configure(_ context.Context, r *pulumirpc.ConfigureRequest) (*pulumirpc.ConfigureResponse, error) {
	args := r.GetArgs().GetFields()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.region = args["region"].GetStringValue()
	if s.region == "" {
		s.region = os.Getenv("AWS_REGION")
	}
	if s.pkg == "aws" && s.region == "" {
		return nil, status.Error(codes.InvalidArgument, "missing region configuration: set aws:region")
	}
	if text := args["defaultTags"].GetStringValue(); text != "" {
		var defaults struct{ Tags map[string]any }
		if err := json.Unmarshal([]byte(text), &defaults); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "defaultTags: %v", err)
		}
		s.defaultTags = defaults.Tags
	}
	return &pulumirpc.ConfigureResponse{AcceptSecrets: true, AcceptResources: true, SupportsPreview: true}, nil
}

// Check fills in a name where none is given, and refuses what AWS would.
func (s *standin) Check(_ context.Context, r *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	news, err := plugin.UnmarshalProperties(r.GetNews(), marshalling)
	if err != nil {
		return nil, err
	}
	olds, err := plugin.UnmarshalProperties(r.GetOlds(), marshalling)
	if err != nil {
		return nil, err
	}
	typ := r.GetType()
	if property := autonamed(typ); property != "" && !has(news, property) && !has(news, property+"Prefix") && !has(news, "namePrefix") {
		if old, ok := olds[resource.PropertyKey(property)]; ok {
			news[resource.PropertyKey(property)] = old
		} else {
			news[resource.PropertyKey(property)] = resource.NewStringProperty(autoname(typ, r.GetName(), r.GetUrn()))
		}
	}
	if typ == "docker:index/image:Image" {
		news["contextDigest"] = contextDigest(plainMap(news))
	}
	in := newInputs(r.GetName(), news)
	s.check(typ, in)
	response := &pulumirpc.CheckResponse{}
	for _, f := range *in.faults {
		response.Failures = append(response.Failures, &pulumirpc.CheckFailure{Reason: strings.TrimSpace(f.path + " " + f.text)})
	}
	s.trace("Check", r.GetUrn(), map[string]any{"failures": len(*in.faults), "inputs": traced(news)})
	response.Inputs, err = plugin.MarshalProperties(news, marshalling)
	return response, err
}

func (s *standin) check(typ string, in *inputs) {
	digest, hadDigest := in.values["contextDigest"]
	delete(in.values, "contextDigest") // it is the stand-in's own
	known().checkShape(typ, in)
	if rule := rules[typ]; rule != nil {
		rule(in)
	} else if _, ok := known().Resources[typ]; ok && !ruleless[typ] {
		in.fault("", "the stand-in has no rules for %s: add some, or list it as ruleless", typ)
	}
	in.tags("tags")
	if typ == "aws:lambda/function:Function" {
		s.checkPlatform(in)
	}
	if hadDigest {
		in.values["contextDigest"] = digest
	}
}

// ruleless are types whose properties need no more than their types.
var ruleless = map[string]bool{
	"aws:cloudwatch/eventPermission:EventPermission": true,
	"aws:ec2/eip:Eip":                                     true,
	"aws:ec2/internetGateway:InternetGateway":             true,
	"aws:ec2/natGateway:NatGateway":                       true,
	"aws:ec2/route:Route":                                 true,
	"aws:ec2/routeTable:RouteTable":                       true,
	"aws:ec2/routeTableAssociation:RouteTableAssociation": true,
	"aws:scheduler/scheduleGroup:ScheduleGroup":           true,
	"docker:index/registryImage:RegistryImage":            true,
	"docker:index/remoteImage:RemoteImage":                true,
	"docker:index/tag:Tag":                                true,
}

// checkPlatform refuses an image for another processor than the function's.
func (s *standin) checkPlatform(in *inputs) {
	uri, _ := in.text("imageUri")
	_, digest, ok := strings.Cut(uri, "@")
	if !ok {
		return
	}
	platform := readPlatforms(s.dir)[digest]
	architecture := "x86_64"
	if list := in.texts("architectures"); len(list) > 0 {
		architecture = list[0]
	} else if !in.known("architectures") {
		return
	}
	want := map[string]string{"arm64": "linux/arm64", "x86_64": "linux/amd64"}[architecture]
	if platform != "" && want != "" && platform != want {
		in.fault("architectures", "is %s, but the image was built for %s", architecture, platform)
	}
}

// immutable are the properties that only a new resource can change.
var immutable = map[string][]string{
	"aws:lambda/function:Function":                                                {"name", "packageType"},
	"aws:lambda/functionUrl:FunctionUrl":                                          {"functionName", "qualifier"},
	"aws:lambda/permission:Permission":                                            {"action", "eventSourceToken", "function", "functionUrlAuthType", "principal", "principalOrgId", "qualifier", "sourceAccount", "sourceArn", "statementId"},
	"aws:lambda/eventSourceMapping:EventSourceMapping":                            {"eventSourceArn", "startingPosition"},
	"aws:lambda/alias:Alias":                                                      {"functionName", "name"},
	"aws:lambda/provisionedConcurrencyConfig:ProvisionedConcurrencyConfig":        {"functionName", "qualifier"},
	"aws:sfn/stateMachine:StateMachine":                                           {"name", "type"},
	"aws:s3/bucketV2:BucketV2":                                                    {"bucket", "bucketPrefix", "objectLockEnabled"},
	"aws:s3/bucket:Bucket":                                                        {"bucket", "bucketPrefix"},
	"aws:dynamodb/table:Table":                                                    {"name", "hashKey", "rangeKey", "localSecondaryIndexes"},
	"aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream":                   {"name", "destination", "kinesisSourceConfiguration"},
	"aws:glue/catalogDatabase:CatalogDatabase":                                    {"name", "catalogId"},
	"aws:glue/catalogTable:CatalogTable":                                          {"name", "databaseName", "catalogId"},
	"aws:ecr/repository:Repository":                                               {"name", "encryptionConfigurations"},
	"aws:ecr/lifecyclePolicy:LifecyclePolicy":                                     {"repository", "policy"},
	"aws:ecr/repositoryPolicy:RepositoryPolicy":                                   {"repository"},
	"aws:iam/role:Role":                                                           {"name", "path"},
	"aws:iam/policy:Policy":                                                       {"name", "path", "description"},
	"aws:iam/rolePolicy:RolePolicy":                                               {"name", "role"},
	"aws:iam/rolePolicyAttachment:RolePolicyAttachment":                           {"role", "policyArn"},
	"aws:sqs/queue:Queue":                                                         {"name", "fifoQueue"},
	"aws:sns/topic:Topic":                                                         {"name", "fifoTopic"},
	"aws:sns/topicSubscription:TopicSubscription":                                 {"topic", "protocol", "endpoint"},
	"aws:efs/fileSystem:FileSystem":                                               {"creationToken", "encrypted", "performanceMode", "kmsKeyId", "availabilityZoneName"},
	"aws:efs/accessPoint:AccessPoint":                                             {"fileSystemId", "posixUser", "rootDirectory"},
	"aws:datasync/s3Location:S3Location":                                          {"s3BucketArn", "s3Config", "subdirectory"},
	"aws:datasync/efsLocation:EfsLocation":                                        {"efsFileSystemArn", "accessPointArn", "ec2Config", "inTransitEncryption"},
	"aws:datasync/task:Task":                                                      {"sourceLocationArn", "destinationLocationArn"},
	"aws:efs/mountTarget:MountTarget":                                             {"fileSystemId", "subnetId", "ipAddress"},
	"aws:cloudwatch/eventRule:EventRule":                                          {"name", "eventBusName"},
	"aws:cloudwatch/eventTarget:EventTarget":                                      {"rule", "targetId", "eventBusName"},
	"aws:cloudwatch/logGroup:LogGroup":                                            {"name", "logGroupClass"},
	"aws:cloudwatch/logStream:LogStream":                                          {"name", "logGroupName"},
	"aws:cloudwatch/dashboard:Dashboard":                                          {"dashboardName"},
	"aws:cloudwatch/metricAlarm:MetricAlarm":                                      {"name"},
	"aws:sesv2/emailIdentity:EmailIdentity":                                       {"emailIdentity"},
	"aws:sesv2/configurationSet:ConfigurationSet":                                 {"configurationSetName"},
	"aws:sesv2/configurationSetEventDestination:ConfigurationSetEventDestination": {"configurationSetName", "eventDestinationName"},
	"aws:secretsmanager/secret:Secret":                                            {"name"},
	"aws:secretsmanager/secretVersion:SecretVersion":                              {"secretId", "secretString"},
	"aws:budgets/budget:Budget":                                                   {"name", "accountId"},
	"aws:ec2/vpc:Vpc":                                                             {"cidrBlock"},
	"aws:ec2/subnet:Subnet":                                                       {"vpcId", "cidrBlock", "availabilityZone"},
	"aws:ec2/securityGroup:SecurityGroup":                                         {"name", "description", "vpcId"},
	"aws:ec2/vpcEndpoint:VpcEndpoint":                                             {"vpcId", "serviceName", "vpcEndpointType"},
}

func (s *standin) Diff(_ context.Context, r *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	olds, err := plugin.UnmarshalProperties(r.GetOldInputs(), marshalling)
	if err != nil {
		return nil, err
	}
	news, err := plugin.UnmarshalProperties(r.GetNews(), marshalling)
	if err != nil {
		return nil, err
	}
	response := &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_NONE, HasDetailedDiff: true, DetailedDiff: map[string]*pulumirpc.PropertyDiff{}}
	diff := olds.Diff(news)
	if diff == nil {
		return response, nil
	}
	fixed := immutable[r.GetType()]
	for _, key := range slices.Sorted(maps.Keys(unionKeys(olds, news))) {
		if !diff.Changed(key) {
			continue
		}
		response.Changes = pulumirpc.DiffResponse_DIFF_SOME
		response.Diffs = append(response.Diffs, string(key))
		kind := pulumirpc.PropertyDiff_UPDATE
		if slices.Contains(fixed, string(key)) {
			kind = pulumirpc.PropertyDiff_UPDATE_REPLACE
			response.Replaces = append(response.Replaces, string(key))
		}
		response.DetailedDiff[string(key)] = &pulumirpc.PropertyDiff{Kind: kind, InputDiff: true}
	}
	// Two resources of one name cannot exist, so the old one goes first.
	if property := autonamed(r.GetType()); len(response.Replaces) > 0 && property != "" && !diff.Changed(resource.PropertyKey(property)) {
		response.DeleteBeforeReplace = true
	}
	s.trace("Diff", r.GetUrn(), map[string]any{"changed": response.Diffs, "replaces": response.Replaces})
	return response, nil
}

func unionKeys(a, b resource.PropertyMap) map[resource.PropertyKey]bool {
	keys := map[resource.PropertyKey]bool{}
	for key := range a {
		keys[key] = true
	}
	for key := range b {
		keys[key] = true
	}
	return keys
}

func (s *standin) Create(_ context.Context, r *pulumirpc.CreateRequest) (*pulumirpc.CreateResponse, error) {
	inputs, err := plugin.UnmarshalProperties(r.GetProperties(), marshalling)
	if err != nil {
		return nil, err
	}
	s.trace("Create", r.GetUrn(), map[string]any{"preview": r.GetPreview(), "inputs": traced(inputs)})
	outputs := inputs.Copy()
	id := ""
	if r.GetPreview() {
		for _, name := range computed(r.GetType()) {
			setIfAbsent(outputs, name, resource.MakeComputed(resource.NewStringProperty("")))
		}
	} else {
		made := s.make(r.GetType(), r.GetName(), r.GetUrn(), plainMap(inputs))
		id = made.id
		for name, value := range made.outputs {
			setIfAbsent(outputs, name, resource.NewPropertyValue(value))
		}
		if err := s.rememberPlatform(r.GetType(), outputs); err != nil {
			return nil, err
		}
	}
	properties, err := plugin.MarshalProperties(outputs, marshalling)
	return &pulumirpc.CreateResponse{Id: id, Properties: properties}, err
}

// alsoComputed are inputs that the provider makes up where they are not given.
var alsoComputed = map[string][]string{
	"aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream": {"arn", "destinationId", "versionId"},
	"aws:cloudwatch/eventTarget:EventTarget":                    {"targetId"},
	"aws:lambda/permission:Permission":                          {"statementId"},
	"aws:lambda/function:Function":                              {"sourceCodeHash"},
	"aws:efs/fileSystem:FileSystem":                             {"creationToken"},
}

// computed are the properties that the provider answers with beyond what it was
// given.
func computed(typ string) []string {
	return append(slices.Sorted(maps.Keys(known().Resources[typ].Outputs)), alsoComputed[typ]...)
}

// volatile are outputs that every update changes.
var volatile = map[string][]string{
	"aws:lambda/function:Function":      {"version", "qualifiedArn", "qualifiedInvokeArn", "lastModified", "codeSha256"},
	"aws:sfn/stateMachine:StateMachine": {"revisionId", "stateMachineVersionArn"},
	"docker:index/image:Image":          {"repoDigest"},
}

func (s *standin) Update(_ context.Context, r *pulumirpc.UpdateRequest) (*pulumirpc.UpdateResponse, error) {
	news, err := plugin.UnmarshalProperties(r.GetNews(), marshalling)
	if err != nil {
		return nil, err
	}
	olds, err := plugin.UnmarshalProperties(r.GetOlds(), marshalling)
	if err != nil {
		return nil, err
	}
	s.trace("Update", r.GetUrn(), map[string]any{"preview": r.GetPreview(), "inputs": traced(news)})
	made := s.make(r.GetType(), r.GetName(), r.GetUrn(), plainMap(news))
	outputs := news.Copy()
	for _, name := range computed(r.GetType()) {
		key := resource.PropertyKey(name)
		switch {
		case r.GetPreview() && slices.Contains(volatile[r.GetType()], name):
			outputs[key] = resource.MakeComputed(resource.NewStringProperty(""))
		case has(olds, name) && !slices.Contains(volatile[r.GetType()], name) && name != "tagsAll":
			setIfAbsent(outputs, name, olds[key])
		default:
			setIfAbsent(outputs, name, resource.NewPropertyValue(made.outputs[name]))
		}
	}
	if !r.GetPreview() {
		if err := s.rememberPlatform(r.GetType(), outputs); err != nil {
			return nil, err
		}
	}
	properties, err := plugin.MarshalProperties(outputs, marshalling)
	return &pulumirpc.UpdateResponse{Properties: properties}, err
}

func (s *standin) Read(_ context.Context, r *pulumirpc.ReadRequest) (*pulumirpc.ReadResponse, error) {
	s.trace("Read", r.GetUrn(), nil)
	return &pulumirpc.ReadResponse{Id: r.GetId(), Properties: r.GetProperties(), Inputs: r.GetInputs()}, nil
}

func (s *standin) Delete(_ context.Context, r *pulumirpc.DeleteRequest) (*emptypb.Empty, error) {
	s.trace("Delete", r.GetUrn(), nil)
	return &emptypb.Empty{}, nil
}

func (s *standin) Cancel(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (s *standin) Attach(context.Context, *pulumirpc.PluginAttach) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

func (s *standin) Invoke(_ context.Context, r *pulumirpc.InvokeRequest) (*pulumirpc.InvokeResponse, error) {
	args, err := plugin.UnmarshalProperties(r.GetArgs(), marshalling)
	if err != nil {
		return nil, err
	}
	s.trace("Invoke", r.GetTok(), map[string]any{"args": traced(args)})
	answer, err := s.invoke(r.GetTok(), plainMap(args))
	if err != nil {
		return nil, err
	}
	result, err := structpb.NewStruct(answer)
	return &pulumirpc.InvokeResponse{Return: result}, err
}

func (s *standin) rememberPlatform(typ string, outputs resource.PropertyMap) error {
	if typ != "docker:index/image:Image" {
		return nil
	}
	object := plainMap(outputs)
	_, digest, _ := strings.Cut(fmt.Sprint(object["repoDigest"]), "@")
	s.mu.Lock()
	defer s.mu.Unlock()
	p := readPlatforms(s.dir)
	p[digest], _ = object["platform"].(string)
	return p.write(s.dir)
}

// trace appends one call to trace.jsonl.
func (s *standin) trace(method, urn string, more map[string]any) {
	if s.dir == "" {
		return
	}
	line := map[string]any{"package": s.pkg, "region": s.region, "method": method, "urn": urn}
	maps.Copy(line, more)
	data, err := json.Marshal(line)
	if err != nil {
		return
	}
	file, err := os.OpenFile(filepath.Join(s.dir, "trace.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.Write(append(data, '\n')) // a trace that is lost fails the test that reads it
}

// traced is what a trace shows of properties: unknowns as "(unknown)", secrets
// as "(secret)".
func traced(properties resource.PropertyMap) any {
	var show func(resource.PropertyValue) any
	show = func(v resource.PropertyValue) any {
		switch {
		case v.IsSecret(), v.IsOutput() && v.OutputValue().Secret:
			return "(secret)"
		case v.IsObject():
			object := map[string]any{}
			for key, value := range v.ObjectValue() {
				object[string(key)] = show(value)
			}
			return object
		case v.IsArray():
			list := []any{}
			for _, value := range v.ArrayValue() {
				list = append(list, show(value))
			}
			return list
		}
		switch value := plain(v).(type) {
		case unknown:
			return "(unknown)"
		case asset:
			return "(asset)"
		default:
			return value
		}
	}
	return show(resource.NewObjectProperty(properties))
}

func has(properties resource.PropertyMap, name string) bool {
	value, ok := properties[resource.PropertyKey(name)]
	return ok && !value.IsNull()
}

func setIfAbsent(properties resource.PropertyMap, name string, value resource.PropertyValue) {
	if !has(properties, name) {
		properties[resource.PropertyKey(name)] = value
	}
}

// autonamed is the property that the provider fills in with a name.
func autonamed(typ string) string {
	switch typ {
	case "aws:s3/bucketV2:BucketV2", "aws:s3/bucket:Bucket":
		return "bucket"
	case "aws:kms/alias:Alias", "aws:sesv2/configurationSet:ConfigurationSet":
		return ""
	}
	r := known().Resources[typ]
	if _, ok := r.Inputs["name"]; ok && strings.HasPrefix(typ, "aws:") && !slices.Contains(r.Required, "name") {
		return "name"
	}
	return ""
}

// autoname is the resource's name and seven digits, always the same for a URN.
func autoname(typ, name, urn string) string {
	sum := sha256.Sum256([]byte(urn))
	text := name + "-" + hex.EncodeToString(sum[:])[:7]
	if strings.HasPrefix(typ, "aws:s3/") {
		text = strings.ToLower(text)
	}
	return text
}

// contextDigest is what pulumi-docker calls so: it changes when a file of the
// build context does.
func contextDigest(image map[string]any) resource.PropertyValue {
	build, _ := image["build"].(map[string]any)
	folder, ok := build["context"].(string)
	if !ok {
		return resource.MakeComputed(resource.NewStringProperty(""))
	}
	folder = fromProgram(folder)
	hash := sha256.New()
	_ = filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // a folder that cannot be read is refused by the rules
		}
		relative, _ := filepath.Rel(folder, path)
		fmt.Fprintf(hash, "%s\x00", relative)
		if info, err := entry.Info(); err == nil {
			fmt.Fprintf(hash, "%o %d\x00", info.Mode().Perm(), info.Size())
		}
		// Models are large; their size stands for them.
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && info.Size() < 1<<20 {
			if data, err := os.ReadFile(path); err == nil {
				hash.Write(data)
			}
		}
		return nil
	})
	return resource.NewStringProperty(hex.EncodeToString(hash.Sum(nil)))
}
